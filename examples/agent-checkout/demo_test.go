package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/demotest"
	"github.com/semelhq/semel/internal/rig/pgtest"
)

// TestDemo sends the requests that the demo prints: the cart is charged once, and all get the same
// order.
func TestDemo(t *testing.T) {
	server := pgtest.Shared(t)
	database := server.URL(server.Database(t))
	d := demotest.Start(t, func(ctx context.Context, l net.Listener, out io.Writer) error { return demo(ctx, l, database, out) })
	answers := map[string]bool{}
	for _, body := range d.Want(http.StatusOK, http.StatusOK, http.StatusOK) {
		_, receipt, ok := strings.Cut(body, `"data":`)
		if receipt, _, _ = strings.Cut(receipt, "}"); !ok || !strings.Contains(receipt, "tx-") {
			t.Fatal(body)
		}
		answers[receipt] = true
	}
	if shown := d.End(); strings.Count(shown, "gateway: charged") != 1 || len(answers) != 1 {
		t.Errorf("the answers are %v:\n%s", answers, shown)
	}
}
