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

// TestDemo sends the requests that the demo prints, and presses the button twice: the refund is paid
// once.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	d := demotest.Start(t, func(ctx context.Context, l net.Listener, out io.Writer) error { return demo(ctx, l, dir, out) })
	d.Want(http.StatusOK, http.StatusOK, http.StatusOK)
	d.Wait("phone: Is that what you want?", 2) // the same message again is no message
	d.Wait("  curl ", 5)
	press := d.Latest(2)[0]
	for range 2 {
		if status, body := d.Send(press); status != http.StatusOK {
			t.Errorf("%s: %d %s", press, status, body)
		}
		d.Wait("phone: Refunded 12.5", 1)
	}
	if shown := d.End(); strings.Count(shown, "payment service: refunded") != 1 {
		t.Error(shown)
	}
}
