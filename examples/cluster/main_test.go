package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/internal/redistest"
)

// TestMain lets this test binary be a node, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == nodeCommand {
		if err := runNode(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(pgtest.Main(m))
}

// once runs the example on a store and wants one effect for every order.
func once(t *testing.T, store string) {
	t.Helper()
	if testing.Short() {
		t.Skip("nodes are not started with -short")
	}
	var out strings.Builder
	ok, err := run(t.Context(), []string{"--store", store, "--orders", "150", "--kills", "6", "--json"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	var s summary
	if err := json.Unmarshal([]byte(out.String()), &s); err != nil {
		t.Fatal(err)
	}
	if !ok || s.Effects != 150 || s.Repeated != 0 || s.Answered != 150 || s.Differing != 0 {
		t.Errorf("%+v", s)
	}
	if s.Kills != 6 || s.Deliveries < 750 {
		t.Errorf("the run was no test: %+v", s)
	}
	t.Logf("%+v", s)
}

func TestThreeNodesOnPostgreSQL(t *testing.T) {
	server := pgtest.Shared(t)
	once(t, server.URL(server.Database(t)))
}

// No master is lost here, only nodes: then Redis keeps what it acknowledged.
func TestThreeNodesOnRedisCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster is not started with -short")
	}
	once(t, redistest.StartCluster(t, "always").URL())
}
