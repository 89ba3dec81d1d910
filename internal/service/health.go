package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/behind"
	"github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/pebblestore"
)

// probeTime bounds each check of readiness.
const probeTime = 2 * time.Second

func (s *Server) live(w http.ResponseWriter, _ *http.Request) {
	plain(w, http.StatusOK, "ok\n")
}

// ready says whether the process should get traffic: it isn't stopping, and the store
// answers, has a reliable clock and accepts new calls. With ?verbose it lists the checks,
// marked + if all is well, - if the process should get no traffic, and ! if it can serve
// and somebody should look at it. It shows callers with a role the details: names of stores and issuers, and errors.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	status, text := http.StatusOK, ""
	caller, general, err := s.identified(r)
	trusted := err == nil && caller.Role >= api.Viewer
	for _, c := range s.checks(r.Context()) {
		if c.general && !(trusted && general) {
			continue
		}
		line, detail := "[+] "+c.Name+" ok", c.Detail
		switch {
		case c.Err != nil:
			status, line, detail = http.StatusServiceUnavailable, "[-] "+c.Name, c.Err.Error()
		case c.Amiss:
			line = "[!] " + c.Name
		}
		if detail != "" && trusted {
			line += ": " + detail
		}
		text += line + "\n"
	}
	switch {
	case r.URL.Query().Has("verbose"):
	case status == http.StatusOK:
		text = "ok\n"
	default:
		text = http.StatusText(status) + "\n"
	}
	plain(w, status, text)
}

// Finding is what one check of a service, or of its installation, found.
type Finding struct {
	// Name is that of the check, and Detail for people.
	Name, Detail string
	// Amiss says that somebody should look at Detail, although the node can serve.
	Amiss bool
	// Err is why the node should get no traffic, or would not start.
	Err error
	// running says that only a process that serves has it; outside that no restart mends Err;
	// general that it is about all tenants, like the metrics.
	running, outside, general bool
}

// checks makes all checks; an [Inspection] leaves out what only a process that serves has.
func (s *Server) checks(ctx context.Context) []Finding {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	checks := []Finding{{Name: "serving", Detail: "semel " + s.version + " " + runtime.Version(), running: true}, {Name: "store", Detail: s.storeName}}
	if s.stopping.Load() {
		checks[0].Err = errors.New("the service is stopping")
	}
	var answers, writes Finding
	var both sync.WaitGroup
	both.Go(func() { answers = s.answering(ctx) })
	both.Go(func() { writes = s.writing(ctx) })
	both.Wait()
	if checks[1].Err, checks[1].Amiss = answers.Err, answers.Amiss; answers.Amiss {
		checks[1].Detail += "; " + answers.Detail
	}
	if now, err := s.store.Now(ctx); err == nil && s.gauges.census != nil {
		calls, text := s.gauges.census.Waiting(now)
		checks = append(checks, Finding{Name: "held", Detail: text, Amiss: calls > 0, running: true, general: true})
	}
	checks = append(checks, s.durabilityCheck(), s.sweeping())
	if states := s.current().auth.KeyStates(); len(states) > 0 {
		checks = append(checks, issuers(states))
	}
	if st, now, ok := s.clockState(ctx); ok {
		checks = append(checks, clockCheck(st, now))
	}
	if writes.Name != "" {
		checks = append(checks, writes)
	}
	if embedded, ok := store.As[*pebblestore.Store](s.store); ok {
		checks = append(checks, roomOf(embedded))
	}
	if s.evidence != nil {
		c := Finding{Name: "evidence"}
		if err := s.evidence.Fault(); err != nil {
			c.Amiss, c.Detail = true, "FAULT: "+err.Error() // entries are still written, so no call is refused
		}
		checks = append(checks, c)
		if s.current().cfg.Evidence.AuditEvery != 0 {
			checks = append(checks, s.auditCheck())
		}
	}
	if checks[1].Err != nil && s.gauges.census != nil { // an inspection has the errors as they are
		return s.away(checks)
	}
	s.awaySince.Store(0)
	return checks
}

// every calls f now, and then after each pause until ctx ends.
func every(ctx context.Context, pause time.Duration, f func()) {
	f()
	behind.Every(ctx, pause, func(context.Context) { f() })
}

// issuers is the state of the keys fetched from token issuers. An issuer that doesn't
// answer doesn't make the node unready: other callers are served, and another node could
// not reach it either.
func issuers(states []auth.KeyState) Finding {
	c := Finding{Name: "issuers", running: true}
	var parts []string
	for _, state := range states {
		parts = append(parts, state.String())
		c.Amiss = c.Amiss || state.Err != nil
	}
	c.Detail = strings.Join(parts, "; ")
	return c
}

// watchKeys keeps the keys of issuers fresh, and logs when that fails and when it succeeds again.
func (s *Server) watchKeys(ctx context.Context) {
	failing := map[string]bool{}
	every(ctx, auth.RefreshEvery, func() {
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
	})
}

// noteSweep keeps the last sweep. One that looked ahead and found no trouble says nothing
// about the records that it didn't look at.
func (s *Server) noteSweep(e semel.SweepEnded) {
	if !e.Swept.Partial || e.Err != nil || s.lastSweep.Load() == nil {
		s.lastSweep.Store(&e)
	}
	if e.Err == nil {
		s.sweptAt.Store(time.Now().UnixMilli())
	}
}

// sweeping is the state of the last sweep. Trouble with some records doesn't make the
// node unready: other nodes have the same trouble.
func (s *Server) sweeping() Finding {
	c := Finding{Name: "sweeps", running: true}
	e := s.lastSweep.Load()
	if e == nil {
		c.Detail = "none yet"
		return c
	}
	var parts []string
	if text := sweepProblem(e); text != "" {
		parts = append(parts, text)
	}
	if e.Swept.Unreadable > 0 {
		parts = append(parts, fmt.Sprintf("%d records can't be read", e.Swept.Unreadable))
	}
	if e.Swept.Left > 0 {
		parts = append(parts, fmt.Sprintf("%d due records are left to programs that have their operations", e.Swept.Left))
	}
	c.Detail = strings.Join(parts, "; ")
	c.Amiss = c.Detail != ""
	return c
}

// durabilityCheck is what the store promised when its settings were last read.
func (s *Server) durabilityCheck() Finding {
	c := Finding{Name: "durability"}
	d := s.reading.Load() // what readDurability read last
	switch strict := s.current().cfg.Store.Profile == "strict"; {
	case d.err != nil && strict:
		c.Err = d.err
		return c
	case d.err != nil:
		c.Amiss, c.Detail = true, "not known: "+d.err.Error()
		return c
	case strict && len(d.Unsafe) > 0:
		c.Err = errors.New(strings.Join(d.Unsafe, "; "))
	}
	c.Detail, c.Amiss = string(d.Level), len(d.Unsafe) > 0
	for _, set := range d.Settings {
		c.Detail += fmt.Sprintf(" %s=%q", set.Name, set.Value)
	}
	for _, sentence := range d.Unsafe {
		c.Detail += "; unsafe: " + sentence
	}
	return c
}

// durabilityReading is a store's durability, or why it can't be read.
type durabilityReading struct {
	store.Durability
	err error
}

// watchDurability reads the store's settings, and the free space on its disk, every
// minute, because both can change at any time. It logs changes.
func (s *Server) watchDurability(ctx context.Context) {
	every(ctx, time.Minute, func() {
		s.watchRoom()
		before := s.reading.Load()
		now := s.readDurability(ctx)
		if before.Level != now.Level || len(before.Unsafe) != len(now.Unsafe) || (before.err == nil) != (now.err == nil) {
			s.log.Warn("the store's durability has changed", slog.String("durability", string(now.Level)), slog.Any("unsafe", now.Unsafe), slog.Any("error", now.err))
		}
	})
}

func (s *Server) readDurability(ctx context.Context) *durabilityReading {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	p := &durabilityReading{}
	p.Durability, p.err = DurabilityOf(ctx, s.store)
	s.reading.Store(p)
	return p
}

// Healthy reports whether the process can do its work, or a restart by its watchdog would
// not help.
func (s *Server) Healthy() bool {
	return !slices.ContainsFunc(s.checks(context.Background()), func(c Finding) bool { return c.Err != nil && !c.outside })
}

func plain(w http.ResponseWriter, status int, text string) {
	problem.WriteBody(w, status, "text/plain; charset=utf-8", []byte(text))
}
