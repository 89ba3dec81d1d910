package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// TestMain lets this test binary be a gateway, as the program is.
func TestMain(m *testing.M) {
	isGateway, err := stage.Child(context.Background(), func(ctx context.Context, l net.Listener, args []string) error {
		return serve(ctx, l, args[0], args[1])
	})
	if !isGateway {
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestRefunds(t *testing.T) {
	if testing.Short() {
		t.Skip("gateways are not started with -short")
	}
	t.Run("each order is refunded once", func(t *testing.T) {
		orders := thorough.Scaled(500)
		got := play(t, orders, 10, true)
		if got["orders refunded twice"] != 0 || got["orders with two answers"] != 0 || got["orders refunded"]+got["left to a person"] < orders {
			t.Error("the gateway didn't do what it is for")
		}
		if got["tries"] <= 2*orders {
			t.Error("the run was no test: nothing had to be asked for again")
		}
	})
	t.Run("without the gateway some are refunded twice", func(t *testing.T) {
		if got := play(t, 40, 0, false); got["orders refunded twice"] == 0 {
			t.Error("the storm doesn't show that anything is needed")
		}
	})
}

// play has agents refund orders over connections that break, each twice and partly at once, kills the
// gateway again and again, and returns the counts at the end.
func play(t *testing.T, orders, kills int, guarded bool) map[string]int {
	books := &ledger{}
	shop := httptest.NewServer(newShop(books))
	defer shop.Close()
	a := &agent{url: func() string { return shop.URL }, client: &http.Client{Transport: &flaky{}}}
	load := &stage.Load{Calls: stage.Shuffled(orders, 2), Senders: 20, Pause: 20 * time.Millisecond, HangUp: 20 * time.Millisecond}
	if guarded {
		gateway, err := stage.StartSelf(t.Context(), t.TempDir(), shop.URL+"/mcp")
		if err != nil {
			t.Fatal(err)
		}
		defer gateway.Kill()
		a.url, load.Times, load.Disturb = gateway.URL, kills, gateway.Crash
	}
	var answers stage.Counts // by order
	var tries, left atomic.Int64
	load.Try = func(ctx context.Context, n int) (bool, error) {
		tries.Add(1)
		order := fmt.Sprintf("R-%d", n)
		said, err := a.refund(ctx, refund{order, 1250})
		switch {
		case errors.Is(err, errNobodyKnows):
			left.Add(1)
			return true, nil
		case err != nil:
			return false, nil
		}
		answers.Add(order, said)
		return true, nil
	}
	if err := load.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	refunded, twice := 0, 0
	for n := range orders {
		switch ids := books.of(fmt.Sprintf("R-%d", n)); {
		case len(ids) > 1:
			twice++
			fallthrough
		case len(ids) == 1:
			refunded++
		}
	}
	got := map[string]int{
		"tries": int(tries.Load()), "orders refunded": refunded, "orders refunded twice": twice, "left to a person": int(left.Load()),
		"orders with two answers": len(answers.Differing()),
	}
	t.Log(got)
	return got
}
