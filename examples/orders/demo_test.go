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

// TestDemo delivers the orders that the demo prints: one is made, both of its deliveries get its
// number, and the other order of the cart is refused.
func TestDemo(t *testing.T) {
	server := pgtest.Shared(t)
	database := server.URL(server.Database(t))
	d := demotest.Start(t, func(ctx context.Context, l net.Listener, out io.Writer) error { return demo(ctx, l, database, out) })
	bodies := d.Want(http.StatusCreated, http.StatusOK, http.StatusUnprocessableEntity)
	if bodies[0] != `{"order":1}` || bodies[1] != bodies[0] {
		t.Errorf("%q", bodies)
	}
}
