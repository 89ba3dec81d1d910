package redistest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/servertest"
)

func TestAServerThatIsKilledComesBackWithItsData(t *testing.T) {
	s := Start(t, "always")
	s.Do("SET", "k", "v")
	s.Kill()
	s.Restart()
	if v := s.Do("GET", "k"); v != "v" {
		t.Fatalf("after the restart the value is %q", v)
	}
}

func TestAClusterServesEverySlotAndFailsOver(t *testing.T) {
	c := StartCluster(t, "")
	for i := range 3 {
		c.Nodes[i].Do("SET", "{"+tagIn(t, c, i)+"}", strconv.Itoa(i))
	}
	first := c.Nodes[0]
	first.Kill()
	servertest.Eventually(t, "the replica takes over", func() error {
		_, err := c.Nodes[3].Try("SET", "{"+tagIn(t, c, 0)+"}", "x")
		return err
	})
	first.Restart()
	c.AwaitHealthy()
	if role := first.Do("INFO", "replication"); !strings.Contains(role, "role:slave") {
		t.Fatalf("the master that was away is %.40q", role)
	}
}

// tagIn finds a key in a third of the slots.
func tagIn(t *testing.T, c *Cluster, third int) string {
	t.Helper()
	for i := range 1000 {
		tag := strconv.Itoa(i)
		slot, err := strconv.Atoi(c.Nodes[1].Do("CLUSTER", "KEYSLOT", tag))
		if err != nil {
			t.Fatal(err)
		}
		if slot*3/Slots == third {
			return tag
		}
	}
	t.Fatal("no tag found")
	return ""
}

func TestAMasterCanBeIsolatedFromItsPeersOnly(t *testing.T) {
	c := StartPartitionedCluster(t, "")
	master, replica := c.Nodes[0], c.Nodes[3]
	key := "{" + tagIn(t, c.Cluster, 0) + "}"
	heal := c.Isolate(master)
	master.Do("SET", key, "isolated") // it does not know yet
	servertest.Eventually(t, "the replica takes over", func() error {
		_, err := replica.Try("SET", key, "the others")
		return err
	})
	if _, err := master.Try("SET", key, "late"); err == nil || !strings.Contains(err.Error(), "CLUSTERDOWN") {
		t.Errorf("the isolated master answers %v", err)
	}
	heal()
	c.AwaitHealthy()
	if role := master.Do("INFO", "replication"); !strings.Contains(role, "role:slave") {
		t.Errorf("the master that was isolated is %.40q", role)
	}
	if v := replica.Do("GET", key); v != "the others" {
		t.Errorf("the value is %q", v)
	}
}
