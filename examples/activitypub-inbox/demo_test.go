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

// TestDemo sends the requests that the demo prints: the report is created once and validated once.
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
	if err := stage.Until(ctx, func() bool { return len(screen.Requests()) == 3 }); err != nil {
		t.Fatal(err)
	}
	for _, request := range screen.Requests() {
		if out, err := stage.Type(ctx, request); err != nil || !strings.HasSuffix(strings.TrimSpace(out), "202") {
			t.Errorf("%s: %v, %s", request, err, out)
		}
	}
	if err := stage.Until(ctx, func() bool { return strings.Contains(screen.Text(), "tracker: validated") }); err != nil {
		t.Fatalf("%v:\n%s", err, screen.Text())
	}
	stop()
	if n := strings.Count(screen.Text(), "tracker:"); n != 2 {
		t.Errorf("%d changes:\n%s", n, screen.Text())
	}
}
