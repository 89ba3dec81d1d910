package main

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// TestDemo sends the requests that the demo prints, and presses the button twice: the refund is paid
// once.
func TestDemo(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the demo's requests need curl")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	var screen stage.Screen
	ended := make(chan error, 1)
	dir := t.TempDir()
	go func() {
		err := demo(ctx, l, dir, &screen)
		l.Close() // nobody waits for its answers
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	send := func(request string) {
		t.Helper()
		if out, err := stage.Type(ctx, request); err != nil || !strings.HasSuffix(strings.TrimSpace(out), "200") {
			t.Errorf("%s: %v, %s", request, err, out)
		}
	}
	until := func(what string, n int) {
		t.Helper()
		if err := stage.Until(ctx, func() bool { return strings.Count(screen.Text(), what) >= n }); err != nil {
			t.Fatalf("%v, waiting for %q:\n%s", err, what, screen.Text())
		}
	}
	until("  curl ", 3)
	for _, request := range screen.Requests() {
		send(request)
	}
	until("phone: Is that what you want?", 2) // the same message again is no message
	until("  curl ", 5)
	presses := screen.Requests()[3:]
	send(presses[0])
	until("phone: Refunded 12.5", 1)
	send(presses[0])
	stop()
	if n := strings.Count(screen.Text(), "payment service: refunded"); n != 1 {
		t.Errorf("%d refunds:\n%s", n, screen.Text())
	}
}
