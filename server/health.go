package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/semelhq/semel"
)

// probeTime bounds each check of readiness.
const probeTime = 2 * time.Second

// live answers as long as the process serves at all.
func (s *Server) live(w http.ResponseWriter, _ *http.Request) {
	plain(w, http.StatusOK, "ok\n")
}

// ready says whether the process should get traffic: it is not stopping, and the
// store answers. With ?verbose it lists the checks.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	status, text := http.StatusOK, ""
	for _, c := range s.checks(r.Context()) {
		if c.err == nil {
			text += fmt.Sprintf("[+] %s ok", c.name)
			if c.detail != "" {
				text += ": " + c.detail
			}
			text += "\n"
			continue
		}
		status = http.StatusServiceUnavailable
		text += fmt.Sprintf("[-] %s: %v\n", c.name, c.err)
	}
	if !r.URL.Query().Has("verbose") {
		text = http.StatusText(status)
		if status == http.StatusOK {
			text = "ok"
		}
		text += "\n"
	}
	plain(w, status, text)
}

type check struct {
	name, detail string
	err          error
}

func (s *Server) checks(ctx context.Context) []check {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	checks := []check{{name: "serving"}, {name: "store", detail: s.storeName}}
	if s.stopping.Load() {
		checks[0].err = errStopping
	}
	// A record that can't exist: to say that it is absent the store has to look.
	if _, err := s.engine.Lookup(ctx, semel.ID{Operation: "semel.probe", Key: "probe"}); err != nil && !isNotFound(err) {
		checks[1].err = err
	}
	return checks
}

// Healthy reports whether the process can do its work.
func (s *Server) Healthy() bool {
	for _, c := range s.checks(context.Background()) {
		if c.err != nil {
			return false
		}
	}
	return true
}

func plain(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // whoever asked may ask again
}
