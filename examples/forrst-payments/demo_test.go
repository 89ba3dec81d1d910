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

// TestDemo sends the requests that the demo prints: one charge, its result again, and a conflict.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	d := demotest.Start(t, func(ctx context.Context, l net.Listener, out io.Writer) error { return demo(ctx, l, dir, out) })
	bodies := d.Want(http.StatusOK, http.StatusOK, http.StatusConflict)
	for i, want := range []string{`"status":"processed"`, `"status":"cached"`, `"code":"IDEMPOTENCY_CONFLICT"`} {
		if !strings.Contains(bodies[i], want) {
			t.Errorf("%s, want %s", bodies[i], want)
		}
	}
	if shown := d.End(); strings.Count(shown, "bank: charged") != 1 {
		t.Error(shown)
	}
}
