package figures_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/service/figures"
	"github.com/semelhq/semel/store/memstore"
)

// decide counts a decision about a call of a tenant, with what it had added.
func (n *node) decide(tenant, operation string, d semel.Decision, added time.Duration) {
	n.figures.Events().Decided(semel.Decided{
		ID: semel.ID{Tenant: tenant, Operation: operation, Key: "of " + tenant}, Door: "http", Decision: d, Added: added, At: time.Now(),
	})
}

func (n *node) ofTenant(t *testing.T, tenant string) *figures.Report {
	t.Helper()
	r, err := n.figures.Read(t.Context(), time.Hour, &tenant)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A tenant has its own sums, operations, latency and records over all nodes, of before a restart too,
// and nothing of another tenant's.
func TestATenantHasFiguresOfItsOwn(t *testing.T) {
	clause.Proves(t, "MAP-MON.1", "MAP-MON.5")
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		a, b := start(t, st), start(t, st)
		for range 3 {
			a.decide("acme", "pay", semel.Replay, time.Millisecond)
			b.decide("acme", "pay", semel.Replay, time.Millisecond)
			b.decide("zeta", "mail", semel.Replay, time.Second)
		}
		a.decide("acme", "pay", semel.Execute, 0)
		a.decide("", "pay", semel.Conflict, 0)
		b.figures.Events().Ended(semel.Ended{ID: semel.ID{Tenant: "acme", Operation: "pay", Key: "of acme"}, Door: "http", Attempt: 2, Disposition: semel.DispositionFailed, At: time.Now()})
		b.figures.Events().Answered(semel.Delivered{Door: "http", Code: semel.CodeInvalidCall, ID: semel.ID{Tenant: "acme"}})
		pass(2 * time.Minute)
		a.stop()
		want := map[string]figures.Sums{
			"acme": {Deliveries: 7, Executed: 1, Stopped: 6, StoppedShare: 6.0 / 7, FailedAttempts: 1},
			"zeta": {Deliveries: 3, Stopped: 3, StoppedShare: 1},
			"":     {Deliveries: 1, Conflicts: 1},
			"none": {},
		}
		for _, n := range []*node{b, start(t, st)} {
			for tenant, want := range want {
				r := n.ofTenant(t, tenant)
				if r.Total != want || *r.Tenant != tenant || r.Partial {
					t.Errorf("%q has %+v, want %+v", tenant, r.Total, want)
				}
				for _, rec := range append(r.Repeated, r.Failing...) {
					if rec.Tenant != tenant {
						t.Errorf("%q sees a record of %q", tenant, rec.Tenant)
					}
				}
				for _, s := range r.Series {
					if s.Door != "http" {
						t.Errorf("%q has the series %+v", tenant, s)
					}
				}
			}
			r := n.ofTenant(t, "acme")
			if len(r.Operations) != 1 || len(r.Repeated) != 1 || r.Repeated[0].Repeats != 6 || len(r.Failing) != 1 {
				t.Errorf("operations %+v, repeated %+v, failing %+v", r.Operations, r.Repeated, r.Failing)
			}
			p99 := 0.0
			for _, p := range r.Points {
				p99 = max(p99, p.P99)
			}
			if p99 < 0.001 || p99 > 0.0012 {
				t.Errorf("deliveries that had a millisecond added have a p99 of %v s", p99)
			}
			if all := n.report(t, time.Hour); all.Total.Deliveries != 11 || all.Total.Refused != 1 || all.Tenant != nil {
				t.Errorf("all have %+v", all.Total)
			}
		}
	})
}

// A node counts so many tenants as it has room for, says of the others that their figures may be
// too low, and gives the room to others in the next hour. The sums over all lose nothing.
func TestMoreTenantsThanThereIsRoomFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &away{Store: memstore.New()}
		n := start(t, st)
		for i := range 5000 {
			n.decide(fmt.Sprint("tenant-", i), "pay", semel.Execute, 0)
		}
		pass(2 * time.Second)
		if r := n.ofTenant(t, "tenant-1"); r.Total.Executed != 1 || !r.Partial {
			t.Errorf("the first: %+v, partial %v", r.Total, r.Partial)
		}
		if r := n.ofTenant(t, "tenant-4999"); r.Total.Executed != 0 || !r.Partial {
			t.Errorf("the last: %+v, partial %v", r.Total, r.Partial)
		}
		if r := n.report(t, time.Hour); r.Total.Executed != 5000 || len(r.Operations) != 1 || r.Partial {
			t.Errorf("in sum %+v of %+v", r.Total, r.Operations)
		}
		pass(time.Hour)
		n.decide("tenant-4999", "pay", semel.Execute, 0)
		pass(time.Minute)
		if r := n.ofTenant(t, "tenant-4999"); r.Total.Executed != 1 || r.Partial {
			t.Errorf("an hour later: %+v, partial %v", r.Total, r.Partial)
		}
		if _, largest := st.written(); largest > 100<<10 {
			t.Errorf("a cell has %d bytes", largest)
		}
	})
}

// Nodes that run are listed with what they count. One that stops is gone at once, one that dies is
// silent, and gone after an hour; one that is started again under its name replaces it.
func TestNodesAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		died := &away{Store: st}
		a, b, c, quiet := start(t, st), start(t, st), start(t, died), start(t, st)
		_ = quiet // says nothing of itself, as a program without a dashboard
		for name, n := range map[string]*node{"a-1": a, "b-1": b, "c-1": c} {
			n.figures.Announce(name, "v1.0.0")
		}
		began := time.Now().Unix()
		list := func() (text string) {
			t.Helper()
			r, err := b.figures.Nodes(t.Context(), time.Hour, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range r.Nodes {
				text += fmt.Sprint(n.Node, " ", n.Version, " ", n.Total.Deliveries)
				if n.Silent {
					text += " silent"
				}
				if n.Answers {
					text += " answers"
				}
				text += ", "
				if n.Started.Unix() > began+2 || n.LastSeen.Before(n.Started) {
					t.Errorf("%s was started at %v and seen at %v, and they began at %v", n.Node, n.Started, n.LastSeen, began)
				}
			}
			return text + fmt.Sprint(r.Total.Deliveries)
		}
		is := func(want string) {
			t.Helper()
			if got := list(); got != want {
				t.Errorf("the nodes are %q, want %q", got, want)
			}
		}
		pass(2 * time.Second)
		is("a-1 v1.0.0 0, b-1 v1.0.0 0 answers, c-1 v1.0.0 0, 0")
		a.decide("acme", "pay", semel.Execute, 0)
		c.decide("zeta", "pay", semel.Execute, 0)
		pass(10 * time.Minute) // in which nobody calls
		is("a-1 v1.0.0 1, b-1 v1.0.0 0 answers, c-1 v1.0.0 1, 2")
		zeta := "zeta"
		if r, err := b.figures.Nodes(t.Context(), time.Hour, &zeta); err != nil || r.Total.Deliveries != 1 || r.Nodes[0].Total.Deliveries != 0 || r.Nodes[2].Total.Deliveries != 1 {
			t.Errorf("of one tenant %+v, %v", r, err)
		}
		a.stop()
		died.set(true, false)
		pass(2 * time.Minute)
		is("b-1 v1.0.0 0 answers, c-1 v1.0.0 1, 2")
		pass(2 * time.Minute)
		is("b-1 v1.0.0 0 answers, c-1 v1.0.0 1 silent, 2")
		pass(time.Hour)
		is("b-1 v1.0.0 0 answers, 0")
	})
}

// A node that is started again has the place of the one that it replaces.
func TestANodeThatIsStartedAgainIsListedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &away{Store: memstore.New()}
		killed := start(t, st)
		killed.figures.Announce("a-1", "v1.0.0")
		pass(2 * time.Second)
		st.set(true, false)
		killed.stop()
		again := start(t, st.Store)
		again.figures.Announce("a-1", "v1.1.0")
		pass(5 * time.Minute)
		r, err := again.figures.Nodes(t.Context(), time.Hour, nil)
		if err != nil || len(r.Nodes) != 1 || r.Nodes[0].Version != "v1.1.0" || !r.Nodes[0].Answers {
			t.Errorf("%v, %+v", err, r)
		}
	})
}
