// Package demotest plays the person who runs the demo of an example, and sends the requests that
// it prints with curl. Without curl such a test is skipped, or fails with SEMEL_REQUIRE_SERVICES=1.
package demotest

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// patience is how long a demo may take for all of it, on a busy machine.
const patience = 2 * time.Minute

// Demo is a demo that runs. Its methods are for the goroutine of the test.
type Demo struct {
	// Requests are the requests that it printed at first.
	Requests []string

	t     *testing.T
	ctx   context.Context
	stop  context.CancelFunc
	shown screen
	ended chan error
}

// Start runs a demo at an address of its own until End is called or the test ends, and waits for
// the three requests that every demo prints.
func Start(t *testing.T, demo func(ctx context.Context, l net.Listener, out io.Writer) error) *Demo {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			t.Fatal(err)
		}
		t.Skip("the demo's requests need curl")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &Demo{t: t, ended: make(chan error, 1)}
	d.ctx, d.stop = context.WithTimeout(t.Context(), patience)
	go func() {
		err := demo(d.ctx, l, &d.shown)
		l.Close() // nobody waits for its answers
		d.ended <- err
	}()
	t.Cleanup(func() { d.End() })
	d.Wait("  curl ", 3)
	d.Requests = d.Latest(3)
	return d
}

// Latest are the n requests that were printed last.
func (d *Demo) Latest(n int) (all []string) {
	for line := range strings.Lines(d.shown.String()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "curl ") {
			all = append(all, line)
		}
	}
	return all[len(all)-n:]
}

// Wait waits until the demo has printed something n times.
func (d *Demo) Wait(what string, n int) {
	d.t.Helper()
	if err := stage.Until(d.ctx, func() bool { return strings.Count(d.shown.String(), what) >= n }); err != nil {
		d.t.Fatalf("%v, waiting for %q:\n%s", err, what, &d.shown)
	}
}

// Send sends a request as a person at a terminal does, and returns the answer.
func (d *Demo) Send(request string) (status int, body string) {
	d.t.Helper()
	out, err := exec.CommandContext(d.ctx, "sh", "-c", request).CombinedOutput()
	text := strings.TrimSpace(string(out))
	i := strings.LastIndexByte(text, '\n')
	status, bad := strconv.Atoi(text[i+1:])
	if err != nil || bad != nil {
		d.t.Fatalf("%s: %v, %s", request, err, text)
	}
	return status, strings.TrimSpace(text[:max(i, 0)])
}

// Want sends the first requests and wants these statuses. It returns the answers.
func (d *Demo) Want(statuses ...int) (bodies []string) {
	d.t.Helper()
	for i, want := range statuses {
		status, body := d.Send(d.Requests[i])
		if status != want {
			d.t.Errorf("%s: %d %s, want %d", d.Requests[i], status, body, want)
		}
		bodies = append(bodies, body)
	}
	return bodies
}

// End ends the demo, and returns all that it printed.
func (d *Demo) End() string {
	d.t.Helper()
	if d.stop != nil {
		d.stop()
		d.stop = nil
		if err := <-d.ended; err != nil {
			d.t.Error(err)
		}
	}
	return d.shown.String()
}

// screen keeps what a demo prints.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
