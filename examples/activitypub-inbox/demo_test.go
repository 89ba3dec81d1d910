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

// TestDemo sends the requests that the demo prints: the report is created once and validated once.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	d := demotest.Start(t, func(ctx context.Context, l net.Listener, out io.Writer) error { return demo(ctx, l, dir, out) })
	d.Want(http.StatusAccepted, http.StatusAccepted, http.StatusAccepted)
	d.Wait("tracker: validated", 1)
	if shown := d.End(); strings.Count(shown, "tracker:") != 2 {
		t.Error(shown)
	}
}
