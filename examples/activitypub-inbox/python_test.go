package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/service"
)

// handler is handler.py on a database, until kill. Its log is whole then.
type handler struct {
	url  string
	log  lines
	kill func()
}

// lines is what a process has written so far.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func startHandler(t *testing.T, file string) *handler {
	t.Helper()
	h := new(handler)
	cmd := exec.Command("python3", "handler.py", file, "0")
	cmd.Stderr = &h.log
	out, err := cmd.StdoutPipe()
	if err = errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	h.kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	t.Cleanup(h.kill)
	at, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("handler.py: %v\n%s", err, h.log.String())
	}
	h.url = "http://127.0.0.1:" + strings.TrimSpace(at)
	return h
}

// TestHandlerInPython has a handler in another language behind the service. Two activities ask for
// each step, and the first comes before its report does; each step is done once.
func TestHandlerInPython(t *testing.T) {
	clause.Proves(t, "VUL-04-004")
	if _, err := exec.LookPath("python3"); err != nil {
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			t.Fatal(err)
		}
		t.Skip("python3 isn't installed")
	}
	dir, s := t.TempDir(), newSender(t)
	h := startHandler(t, filepath.Join(dir, "reports.db"))
	svc, err := service.New(t.Context(), service.Options{Log: slog.New(slog.DiscardHandler), YAML: fmt.Appendf(nil, `
listen: {address: 127.0.0.1:0}
admin: {address: 127.0.0.1:0}
store: {url: "pebble:%s"}
auth: {default_tenant: cases}
activitypub: [{actors_url: "%s/actors/{actor}", shared_inbox: /inbox, actors: [alice], upstream: %q, budget: 1m, signatures: {allow_private: true}}]
`, filepath.Join(dir, "data"), here, h.url)})
	if err != nil {
		t.Fatal(err)
	}
	s.inbox = svc.DataAddr().String()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	defer func() {
		s.client.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	// Two offers of one report and two acceptances, each twice; some come out of order.
	about := func(kind, id string) []byte {
		return fmt.Appendf(nil, `{"type":%q,"id":"%s/activities/%s","actor":%q,"to":["%s/actors/alice"],"object":"report-1"}`, kind, s.bob, id, s.bob, here)
	}
	for _, body := range [][]byte{about("Accept", "1"), about("Offer", "2"), about("Offer", "3"), about("Accept", "4")} {
		for range 2 {
			if status, message := s.post(t.Context(), body, s.key); status != http.StatusAccepted {
				t.Fatalf("%d %s", status, message)
			}
		}
	}
	within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := stage.Until(within, func() bool { return strings.Count(h.log.String(), "INFO") >= 4 }); err != nil {
		t.Fatalf("%v\n%s", err, h.log.String())
	}
	h.kill()
	log := h.log.String()
	for what, times := range map[string]int{"report-1: created": 1, "report-1: already exists": 1, "report-1: state changed": 1, "report-1: already valid": 1} {
		if n := strings.Count(log, what); n != times {
			t.Errorf("%q %d times, want %d:\n%s", what, n, times, log)
		}
	}
}
