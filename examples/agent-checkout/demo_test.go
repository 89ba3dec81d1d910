package main

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/stage"
)

// TestDemo sends the requests that the demo prints: the cart is charged once, and all get the same
// order.
func TestDemo(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the demo's requests need curl")
	}
	server := pgtest.Shared(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var screen stage.Screen
	ended := make(chan error, 1)
	go func() { ended <- demo(ctx, l, server.URL(server.Database(t)), &screen) }()
	if err := stage.Until(ctx, func() bool { return len(screen.Requests()) == 3 }); err != nil {
		t.Fatal(err)
	}
	answers := map[string]bool{}
	for _, request := range screen.Requests() {
		out, err := stage.Type(ctx, request)
		_, receipt, ok := strings.Cut(out, `"data":`)
		if receipt, _, _ = strings.Cut(receipt, "}"); err != nil || !ok || !strings.Contains(receipt, "tx-") {
			t.Fatalf("%s: %v, %s", request, err, out)
		}
		answers[receipt] = true
	}
	if n := strings.Count(screen.Text(), "gateway: charged"); n != 1 || len(answers) != 1 {
		t.Errorf("%d charges, and the answers %v:\n%s", n, answers, screen.Text())
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
