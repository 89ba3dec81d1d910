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

// TestDemo delivers the webhooks that the demo prints: the order is entered once, and the other
// price is a conflict.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	d := demotest.Start(t, func(ctx context.Context, l net.Listener, out io.Writer) error { return demo(ctx, l, dir, out) })
	d.Want(http.StatusOK, http.StatusOK, http.StatusOK)
	d.Wait("order book: entered", 1)
	d.Wait("decision=conflict", 1)
	if shown := d.End(); strings.Count(shown, "order book: entered") != 1 {
		t.Error(shown)
	}
}
