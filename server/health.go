package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/server/api"
	"github.com/semelhq/semel/server/auth"
	"github.com/semelhq/semel/store/pebblestore"
)

// probeTime bounds each check of readiness.
const probeTime = 2 * time.Second

// live answers as long as the process serves at all.
func (s *Server) live(w http.ResponseWriter, _ *http.Request) {
	plain(w, http.StatusOK, "ok\n")
}

// ready says whether the process should get traffic: it is not stopping, and the
// store answers and has a clock to rely on. With ?verbose it lists the checks, and tells
// whoever has a role what they found: names of stores and issuers, and errors.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	status, text := http.StatusOK, ""
	caller, err := s.operator(r)
	trusted := err == nil && caller.Role >= api.Viewer
	for _, c := range s.checks(r.Context()) {
		if c.err == nil {
			text += fmt.Sprintf("[+] %s ok", c.name)
			if c.detail != "" && trusted {
				text += ": " + c.detail
			}
			text += "\n"
			continue
		}
		status = http.StatusServiceUnavailable
		if text += "[-] " + c.name; trusted {
			text += ": " + c.err.Error()
		}
		text += "\n"
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
	} else if _, err := s.store.Now(ctx); err != nil { // without it nothing is begun
		checks[1].err = err
	}
	checks = append(checks, s.promise(), s.sweeping())
	if states := s.current().auth.KeyStates(); len(states) > 0 {
		checks = append(checks, issuers(states))
	}
	if embedded, ok := s.store.(*pebblestore.Store); ok {
		checks = append(checks, roomOf(embedded))
	}
	if s.evidence != nil {
		c := check{name: "evidence"}
		if err := s.evidence.Fault(); err != nil {
			c.detail = "FAULT: " + err.Error() // sending the traffic elsewhere would mend nothing
		}
		checks = append(checks, c)
	}
	return checks
}

// issuers is how the keys stand that are fetched from the issuers of tokens. One that
// does not answer is no reason to send the traffic elsewhere: other callers are served,
// and elsewhere it would be the same.
func issuers(states []auth.KeyState) check {
	var parts []string
	for _, state := range states {
		parts = append(parts, state.String())
	}
	return check{name: "issuers", detail: strings.Join(parts, "; ")}
}

// watchKeys keeps the keys of issuers fresh, and tells when that begins to fail and
// when it ends.
func (s *Server) watchKeys(ctx context.Context) {
	tick := time.NewTicker(auth.RefreshEvery)
	defer tick.Stop()
	failing := map[string]bool{}
	for {
		a := s.current().auth
		a.Refresh(ctx)
		for _, state := range a.KeyStates() {
			if state.Err != nil && !failing[state.Issuer] && ctx.Err() == nil {
				s.log.Warn("the keys of an issuer can't be fetched", slog.String("keys", state.String()))
			} else if state.Err == nil && failing[state.Issuer] {
				s.log.Info("the keys of an issuer can be fetched again", slog.String("keys", state.String()))
			}
			failing[state.Issuer] = state.Err != nil
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweeping is what the last sweep met. Trouble with some records is no reason to send
// the traffic elsewhere, where it would be the same.
func (s *Server) sweeping() check {
	c := check{name: "sweeps"}
	e := s.lastSweep.Load()
	if e == nil {
		c.detail = "none yet"
		return c
	}
	var parts []string
	if text := trouble(e); text != "" {
		parts = append(parts, text)
	}
	if e.Unreadable > 0 {
		parts = append(parts, fmt.Sprintf("%d records can't be read", e.Unreadable))
	}
	if e.Left > 0 {
		parts = append(parts, fmt.Sprintf("%d due records are left to programs that know their operations", e.Left))
	}
	c.detail = strings.Join(parts, "; ")
	return c
}

// promise is what the store promises by its settings, as last read.
func (s *Server) promise() check {
	c := check{name: "durability"}
	d, err := s.durability()
	switch {
	case err != nil:
		c.err = err
		if s.current().cfg.Store.Profile != "strict" {
			c.detail, c.err = "not known: "+err.Error(), nil
		}
		return c
	case s.current().cfg.Store.Profile == "strict" && len(d.Unsafe) > 0:
		c.err = errors.New(strings.Join(d.Unsafe, "; "))
	}
	c.detail = string(d.Level)
	for _, set := range d.Settings {
		c.detail += fmt.Sprintf(" %s=%q", set.Name, set.Value)
	}
	for _, sentence := range d.Unsafe {
		c.detail += "; unsafe: " + sentence
	}
	return c
}

// promised is a store's durability, or why it can't be read.
type promised struct {
	semel.Durability
	err error
}

// durability is what watchDurability read last.
func (s *Server) durability() (semel.Durability, error) {
	p := s.promised.Load()
	return p.Durability, p.err
}

// watchDurability reads the store's settings, and the room on its disk, every minute,
// since they can change while it runs, and tells what changed.
func (s *Server) watchDurability(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.watchRoom()
		before := s.promised.Load()
		now := s.readDurability(ctx)
		if before.Level != now.Level || len(before.Unsafe) != len(now.Unsafe) || (before.err == nil) != (now.err == nil) {
			s.log.Warn("the store promises something else now", slog.String("level", string(now.Level)), slog.Any("unsafe", now.Unsafe), slog.Any("error", now.err))
		}
	}
}

func (s *Server) readDurability(ctx context.Context) *promised {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	p := &promised{}
	p.Durability, p.err = DurabilityOf(ctx, s.store)
	s.promised.Store(p)
	return p
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
