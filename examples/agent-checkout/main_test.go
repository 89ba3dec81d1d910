package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/clause"
	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/internal/stage"
	"github.com/semelhq/semel/internal/thorough"
)

// TestMain lets this test binary be an agent, as the program is.
func TestMain(m *testing.M) {
	isAgent, err := stage.Child(context.Background(), agent)
	if !isAgent {
		os.Exit(pgtest.Main(m))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var line = regexp.MustCompile(`(?m)^ *([0-9]+) (.+)$`)

// play runs the example and returns what it prints.
func play(t *testing.T, args ...string) (ok bool, counts map[string]int) {
	t.Helper()
	server := pgtest.Shared(t)
	var out strings.Builder
	ok, err := run(t.Context(), append([]string{"-database", server.URL(server.Database(t))}, args...), &out)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + out.String())
	counts = map[string]int{}
	for _, m := range line.FindAllStringSubmatch(out.String(), -1) {
		counts[m[2]], _ = strconv.Atoi(m[1]) // it matches digits
	}
	return ok, counts
}

func TestCheckouts(t *testing.T) {
	if testing.Short() {
		t.Skip("agents are not started with -short")
	}
	t.Run("each cart is paid and ordered once", func(t *testing.T) {
		clause.Proves(t, "MAP-PAY.2", "MAP-ORD.1")
		carts := thorough.Scaled(500)
		ok, got := play(t, "-checkouts", fmt.Sprint(carts))
		want := map[string]int{
			"carts": carts, "carts with an answer": carts, "charges": carts, "orders": carts, "webhooks handled": carts,
			"payments found by their transaction": carts, "carts with two answers": 0, "calls left open": 0, "kills of agents": 10,
		}
		for what, n := range want {
			if got[what] != n {
				t.Errorf("%d %s, want %d", got[what], what, n)
			}
		}
		if !ok {
			t.Error("the example says that something happened twice or not at all")
		}
		if got["deliveries of messages"] <= 4*carts || got["deliveries of webhooks"] < 2*carts || got["answers of the gateway lost"] == 0 {
			t.Error("the run was no test: nothing had to be sent again")
		}
	})
	t.Run("without Semel they are paid several times", func(t *testing.T) {
		ok, got := play(t, "-checkouts", "40", "-kills", "2", "-unguarded")
		if ok || got["charges"] <= 40 || got["orders"] <= 40 || got["carts with two answers"] == 0 {
			t.Error("the storm doesn't show that anything is needed")
		}
	})
}
