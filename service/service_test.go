package service_test

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/service"
)

const minimal = `
listen: {address: 127.0.0.1:0}
admin: {address: 127.0.0.1:0}
store: {url: "memory:"}
`

func TestNewNamesEachFaultOfTheConfiguration(t *testing.T) {
	_, err := service.New(t.Context(), service.Options{YAML: []byte("listen: 5\nno-such: 1\n")})
	if err == nil || !strings.Contains(err.Error(), "YAML:1") || !strings.Contains(err.Error(), "YAML:2") {
		t.Errorf("New: %v", err)
	}
	if _, err := service.New(t.Context(), service.Options{File: "a", YAML: []byte("{}")}); err == nil {
		t.Error("New takes File and YAML at once")
	}
}

// TestReload: a file can change while the service runs, the content of YAML can't.
func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "semel.yaml")
	if err := os.WriteFile(file, []byte(minimal), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, service.Options{File: file})
	if err := os.WriteFile(file, []byte(minimal+"operations:\n  - {name: charge, window: 1h}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := s.Reload(); !changed || err != nil {
		t.Errorf("Reload of a file that has changed: %t, %v", changed, err)
	}
	if _, ok := s.Engine().Internal().Operation("charge"); !ok {
		t.Error("after the reload the operation isn't there")
	}
	if _, err := start(t, service.Options{YAML: []byte(minimal)}).Reload(); err == nil {
		t.Error("Reload without a file says nothing")
	}
}

func TestHandlersServeWhatTheListenersServe(t *testing.T) {
	s := start(t, service.Options{YAML: []byte(minimal)})
	data, admin := s.Handlers()
	for at, h := range map[net.Addr]http.Handler{s.DataAddr(): data, s.AdminAddr(): admin} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/livez", nil))
		res, err := http.Get("http://" + at.String() + "/livez")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if w.Code != res.StatusCode {
			t.Errorf("GET /livez at %v: the handler answers %d, the listener %d", at, w.Code, res.StatusCode)
		}
	}
	if !s.Healthy() {
		t.Error("a service that runs isn't healthy")
	}
}

// start runs a service until the test ends.
func start(t *testing.T, opts service.Options) *service.Service {
	t.Helper()
	opts.Log = slog.New(slog.DiscardHandler)
	s, err := service.New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}
