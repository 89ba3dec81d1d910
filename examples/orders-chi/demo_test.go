package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/semelhq/semel/internal/rig/demotest"
	"github.com/semelhq/semel/internal/rig/pgtest"
)

// TestDemo sends the requests that the demo prints: one order, its answer again, and a conflict.
func TestDemo(t *testing.T) {
	server := pgtest.Shared(t)
	database := server.URL(server.Database(t))
	d := demotest.Start(t, func(ctx context.Context, l net.Listener, out io.Writer) error {
		demo("http://"+l.Addr().String(), out)
		return serve(ctx, database, l, func(h http.Handler) http.Handler { return h })
	})
	bodies := d.Want(http.StatusCreated, http.StatusCreated, http.StatusUnprocessableEntity)
	if bodies[0] != `{"id":1,"item":"lamp"}` || bodies[1] != bodies[0] {
		t.Errorf("%q", bodies)
	}
}
