package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/demotest"
)

// TestDemo sends the requests that the demo prints: the order is refunded once, each answer has the
// id that it was asked under, and the other amount is refused. Before, the demo's agent has refunded
// some orders twice without the gateway.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	d := demotest.Start(t, func(ctx context.Context, l net.Listener, out io.Writer) error { return demo(ctx, l, dir, out) })
	bodies := d.Want(http.StatusOK, http.StatusOK, http.StatusOK)
	for i, want := range []string{`"id":1`, `"id":2`, `"id":3`} {
		if !strings.Contains(bodies[i], want) || strings.Contains(bodies[i], "Refunded 1250 cents") != (i < 2) {
			t.Errorf("answer %d: %s", i+1, bodies[i])
		}
	}
	if !strings.Contains(bodies[1], `"io.github.semelhq/replayed":true`) || !strings.Contains(bodies[2], `"code":"conflict"`) {
		t.Errorf("%q", bodies)
	}
	shown := d.End()
	if strings.Count(shown, "ledger: ") != 1 || !strings.Contains(shown, "straight at the server   40 refunds") || !strings.Contains(shown, "through the gateway      20 refunds") {
		t.Error(shown)
	}
}
