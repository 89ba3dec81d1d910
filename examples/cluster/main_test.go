package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/demotest"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
)

// TestMain lets this test binary be a node, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == nodeCommand {
		main()
		return
	}
	os.Exit(pgtest.Main(m))
}

// once runs the example on a store and wants one effect for every order.
func once(t *testing.T, store string, args ...string) *summary {
	t.Helper()
	var out strings.Builder
	ok, err := run(t.Context(), append([]string{"--store", store, "--orders", "150", "--json"}, args...), &out)
	if err != nil {
		t.Fatal(err)
	}
	var s summary
	if err := json.Unmarshal([]byte(out.String()), &s); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", s)
	if !ok || s.Orders < 150 || s.Effects != s.Orders || s.Repeated != 0 || s.Answered != s.Orders || s.Differing != 0 {
		t.Error("not every order had one effect and one answer")
	}
	if s.Deliveries < 5*int64(s.Orders) {
		t.Error("the run was no test: too few deliveries")
	}
	return &s
}

func killed(t *testing.T, store string) {
	t.Helper()
	if s := once(t, store, "--kills", "6"); s.Kills != 6 {
		t.Errorf("the run was no test: %d kills", s.Kills)
	}
}

// rolled restarts every node twice. Nothing may be left open by a node that stops in
// order, and no caller may see more of it than that it has to send again.
func rolled(t *testing.T, store string) {
	t.Helper()
	s := once(t, store, "--kills", "0", "--restarts", "6", "--work", "20ms")
	if s.Held != 0 {
		t.Errorf("%d orders were held", s.Held)
	}
	if s.Failures != 0 {
		t.Errorf("%d deliveries failed otherwise", s.Failures)
	}
	if s.Restarts != 6 || s.Meanwhile < 6 || s.Again == 0 {
		t.Error("the run was no test: no caller met a node that was restarted")
	}
}

func TestThreeNodesOnPostgreSQL(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("nodes are not started with -short")
	}
	server := pgtest.Shared(t)
	t.Run("one after the other is killed", func(t *testing.T) { killed(t, server.URL(server.Database(t))) })
	t.Run("one after the other is restarted", func(t *testing.T) { rolled(t, server.URL(server.Database(t))) })
}

// TestDemo sends the order that the demo prints to one node after the other: it has one effect, and
// all get its receipt.
func TestDemo(t *testing.T) {
	server := pgtest.Shared(t)
	d := demotest.Start(t, func(ctx context.Context, _ net.Listener, out io.Writer) error {
		_, err := run(ctx, []string{"--store", server.URL(server.Database(t)), "--demo"}, out)
		return err
	})
	bodies := d.Want(http.StatusCreated, http.StatusCreated, http.StatusCreated)
	if shown := d.End(); bodies[0] == "" || bodies[1] != bodies[0] || bodies[2] != bodies[0] || !strings.Contains(shown, "upstream: orders 1, effects 1") {
		t.Errorf("%q, and\n%s", bodies, shown)
	}
}

// No master is lost here, only nodes: then Redis keeps what it acknowledged.
func TestThreeNodesOnRedisCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a cluster is not started with -short")
	}
	store := redistest.StartCluster(t, "always", redistest.Patient...).URL()
	t.Run("one after the other is killed", func(t *testing.T) { killed(t, store) })
	t.Run("one after the other is restarted", func(t *testing.T) { rolled(t, store) })
	t.Run("the strict profile refuses it", func(t *testing.T) {
		err := node(t.Context(), fmt.Sprintf("listen: {address: 127.0.0.1:0}\nstore: {url: %q, profile: strict}\n", store))
		if err == nil || !strings.Contains(err.Error(), "the strict profile refuses it: cluster_enabled is 1") {
			t.Errorf("the node ends with %v", err)
		}
	})
}
