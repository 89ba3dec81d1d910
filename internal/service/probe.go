package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/internal/strictyaml"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
)

// The rule of readiness is the same for all stores. A node is unready if its store refuses
// what a probe asks, or if calls have waited for longer than maxSilent without one of them
// being answered. A probe that waits too long in the queue of all others says nothing about
// the store: under load it is one of many, and they are answered.

// maxSilent is how long writes may wait without an answer to any: as long as a caller waits
// for the store.
const maxSilent = semel.DefaultStoreTimeout

// queue is the state of a queue of the store, and whether it has one of that name.
func (s *Server) queue(name string) (store.QueueState, bool) {
	if q := s.store.Extras().Queues; q != nil {
		for _, state := range q.Queues() {
			if state.Name == name {
				return state, true
			}
		}
	}
	return store.QueueState{}, false
}

// probed says what came of a probe that ended with an error. It says nothing against the store
// if the probe itself got no turn, and others in its queue were answered meanwhile.
func (s *Server) probed(ctx context.Context, err error, began time.Time, queues ...string) Finding {
	if ctx.Err() != nil || errors.Is(err, store.ErrNotApplied) {
		for _, name := range queues {
			if q, ok := s.queue(name); ok && q.Answered.After(began) {
				return Finding{Amiss: true, Detail: "busy: a probe got no turn, and others were answered"}
			} else if ok {
				break
			}
		}
	}
	return Finding{Err: err}
}

func (s *Server) answering(ctx context.Context) Finding {
	began := time.Now()
	// A record that can't exist: the store has to look to say so.
	if _, err := s.engine.Lookup(ctx, semel.ID{Operation: "semel.probe", Key: "probe"}); err != nil && !errors.Is(err, semel.ErrNotFound) {
		return s.probed(ctx, err, began, "reads", "writes")
	}
	if _, err := s.store.Now(ctx); err != nil { // without a clock nothing begins
		return Finding{Err: err}
	}
	return Finding{}
}

// writing is whether the store takes and answers writes; without a name where nothing tells.
func (s *Server) writing(ctx context.Context) (c Finding) {
	began := time.Now()
	w := s.store.Extras().Writes
	if w != nil {
		if err := w.CheckWrites(ctx); err != nil {
			c = s.probed(ctx, err, began, "writes")
		}
	}
	q, ok := s.queue("writes")
	if ok && q.Silent > maxSilent {
		c.Amiss, c.Err = false, fmt.Errorf("the store has answered no write for %v, and calls wait for it: its disk or server hangs", q.Silent.Round(time.Second))
	}
	if w != nil || ok {
		c.Name, c.outside = "writes", true
	}
	return c
}

// lookEvery is how often the log can notice that a store takes no writes, or that its clock leaps.
const lookEvery = 2 * time.Second

func (s *Server) watchWrites(ctx context.Context) {
	refused := false
	every(ctx, lookEvery, func() {
		probe, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		err := s.writing(probe).Err
		switch now := err != nil; {
		case now == refused || ctx.Err() != nil:
		case now:
			s.awaySince.CompareAndSwap(0, time.Now().Unix()) // unless reads are answered: see checks
			s.log.Error("the store accepts no writes, so this node is not ready", slog.Any("error", err))
		default:
			s.awaySince.Store(0)
			s.log.Info("the store accepts writes again")
		}
		refused = err != nil
	})
}

// fillingUp reports whether less than a tenth of a disk is free, or too little for a record.
func fillingUp(r pebblestore.Room) bool { return r.Full || r.Free < r.Total/10 }

// roomOf checks how full the embedded store's disk is. Without free space a node accepts no
// new calls, so it gets no traffic. A restart would not free any space.
func roomOf(st *pebblestore.Store) Finding {
	c := Finding{Name: "disk", outside: true}
	r, err := st.Room()
	if err != nil {
		c.Detail = "not known: " + err.Error()
		return c
	}
	c.Detail = fmt.Sprintf("%s of %s are free", strictyaml.Rounded(r.Free), strictyaml.Rounded(r.Total))
	switch {
	case r.Full:
		c.Err = errors.New("FULL: no new call is accepted until there is more space; " + c.Detail)
	case fillingUp(r):
		c.Amiss, c.Detail = true, "filling up: "+c.Detail
	}
	return c
}

func (s *Server) watchRoom() {
	st, ok := store.As[*pebblestore.Store](s.store)
	if !ok {
		return
	}
	r, err := st.Room()
	if err != nil {
		return // readiness reports it
	}
	free, total := slog.Uint64("free", r.Free), slog.Uint64("total", r.Total)
	switch tight := fillingUp(r); {
	case tight == s.tight.Swap(tight):
	case tight:
		s.log.Warn("the disk of the store is filling up", free, total)
	default:
		s.log.Info("the disk of the store has space again", free, total)
	}
}

// away makes one finding of a store that doesn't answer: why, since when, and how many checks
// wait for it. What they read earlier says nothing now, and their errors have the same cause.
func (s *Server) away(checks []Finding) []Finding {
	s.awaySince.CompareAndSwap(0, time.Now().Unix())
	why, all := inWords(s.storeName, checks[1].Err), len(checks)
	checks = slices.DeleteFunc(checks, func(c Finding) bool {
		if c.Name == "writes" && c.Err != nil && errors.Unwrap(c.Err) == nil {
			why = c.Err.Error() // it hangs, which says more
		}
		return slices.Contains([]string{"held", "durability", "sweeps", "writes"}, c.Name) || c.Name == "evidence" && !c.Amiss
	})
	since := time.Unix(s.awaySince.Load(), 0).UTC().Format("15:04 UTC")
	checks[1].Err = fmt.Errorf("%s, since %s (%d checks wait for it)", why, since, all-len(checks))
	return checks
}

// inWords says on one line why the store with a URL doesn't answer.
func inWords(address string, err error) string {
	who := "the store"
	if u, bad := url.Parse(address); bad == nil && u.Host != "" {
		who = "PostgreSQL at " + u.Host
		if (config.Store{URL: address}).Redis() {
			who = "Redis at " + u.Host
		}
	}
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "semel: "+string(semel.CodeStoreUnavailable)+": ")
	for cause, says := range map[string]string{"connection refused": "refuses connections", "context deadline exceeded": "doesn't answer", "no such host": "isn't found: no address has that name"} {
		if strings.HasSuffix(text, ": "+cause) || text == cause {
			return who + " " + says
		}
	}
	return who + ": " + text
}

// clockState describes the store's clock now, unless there is none or it can't be read.
func (s *Server) clockState(ctx context.Context) (st store.ClockState, now store.Instant, ok bool) {
	if k := s.store.Extras().Clock; k != nil {
		if now, err := s.store.Now(ctx); err == nil {
			return k.ClockState(now), now, true
		}
	}
	return st, 0, false
}

// clockCheck says how far the store's time is from the system clock. It is never a reason to get
// no traffic: calls are answered all the time.
func clockCheck(st store.ClockState, now store.Instant) Finding {
	c := Finding{Name: "clock"}
	switch {
	case st.Held > 0:
		c.Detail = fmt.Sprintf("HELD BACK: the clock went ahead by %v and isn't followed yet, so nothing expires early. Noticed %v ago, followed in %v if it lasts; semel store accept-clock follows it now",
			round(st.Held), round(now.Sub(st.Since)), round(st.Until.Sub(now)))
	case st.Back > 0:
		c.Detail = fmt.Sprintf("the clock was put back by %v, %v ago, and the store's time goes on ahead of it", round(st.Back), round(now.Sub(st.Since)))
	}
	c.Amiss = c.Detail != ""
	return c
}

func round(d time.Duration) time.Duration { return d.Round(time.Second) }

// watchClock logs when the clock is set behind the store's time, and when the store follows.
func (s *Server) watchClock(ctx context.Context) {
	var was store.ClockState
	every(ctx, lookEvery, func() {
		st, now, ok := s.clockState(ctx)
		if !ok {
			return
		}
		since := slog.Time("since", st.Since.Time())
		switch {
		case st.Held > 0 && (st.Since != was.Since || was.Held == 0):
			s.log.Warn("the clock of the store went ahead and isn't followed yet: nothing expires or is purged early",
				slog.Duration("by", st.Held), since, slog.Time("until", st.Until.Time()), slog.String("end_it_by", "semel store accept-clock"))
		case st.Held == 0 && was.Held > 0 && st.Leap.At > was.Since:
			s.log.Warn("the time of the store follows its clock again, which went ahead", slog.Duration("by", st.Leap.By), slog.Time("now", now.Time()))
		case st.Since == 0 && was.Since != 0:
			s.log.Info("the clock of the store is right again")
		case st.Held == 0 && st.Since != was.Since:
			s.log.Warn("the clock of the store was put back: the store's time goes on ahead of it", slog.Duration("by", st.Back), since)
		}
		was = st
	})
}

// serveAcceptClock has the store follow its clock now. Calls of every tenant may then expire
// and run again.
func (s *Server) serveAcceptClock(w http.ResponseWriter, r *http.Request) {
	if !s.oversees(w, r, "accept the clock") {
		return
	}
	k := s.store.Extras().Clock
	if k == nil {
		plain(w, http.StatusOK, "the store has no clock that leaps\n")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	st, err := k.AcceptClock(ctx)
	if err != nil {
		s.log.Error("the clock can't be accepted", slog.Any("error", err))
		plain(w, http.StatusServiceUnavailable, "The store refuses it: ask again.\n")
		return
	}
	s.log.Warn("an operator has accepted the clock of the store", slog.Duration("held", st.Held))
	plain(w, http.StatusOK, AcceptedClock(st)+"\n")
}

// serveTestClock moves the clock forward, for tests, and settles what is due then.
func (s *Server) serveTestClock(w http.ResponseWriter, r *http.Request, clock *memstore.Store) {
	if !s.oversees(w, r, "move the clock") {
		return
	}
	by, err := time.ParseDuration(r.URL.Query().Get("by"))
	if err != nil || by < 0 {
		plain(w, http.StatusBadRequest, "Say how far the clock moves forward, such as ?by=25h.\n")
		return
	}
	clock.Advance(by)
	_, _ = s.engine.Sweep(r.Context()) // the log and /readyz tell of its trouble, as of each sweep's
	plain(w, http.StatusOK, "moved\n")
}

// AcceptedClock says, for people, what accepting a clock did.
func AcceptedClock(st store.ClockState) string {
	if st.Held > 0 {
		return fmt.Sprintf("accepted: the store follows its clock, which is %v ahead, in a few seconds", round(st.Held))
	}
	return "accepted: the store holds nothing back"
}

const ofAllTenants = "whom the configuration names without a tenant, or whose token has a value of auth.jwt[].roles with all_tenants." // who has a role for all tenants

// oversees refuses whoever isn't an admin of all tenants.
func (s *Server) oversees(w http.ResponseWriter, r *http.Request, to string) bool {
	c, err := s.operator(r)
	return s.allowed(w, err, c.Role == api.Admin && c.AllTenants, "Only an admin of all tenants may "+to+": one "+ofAllTenants)
}

func (s *Server) allowed(w http.ResponseWriter, err error, may bool, why string) bool {
	switch {
	case errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}):
		plain(w, http.StatusServiceUnavailable, "The credential can't be checked at the moment.\n")
	case err != nil:
		w.Header().Set("WWW-Authenticate", auth.Challenge(err))
		plain(w, http.StatusUnauthorized, "Send a credential.\n")
	case !may:
		plain(w, http.StatusForbidden, why+"\n")
	}
	return err == nil && may
}
