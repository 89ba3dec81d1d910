package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/strictyaml"
	"github.com/semelhq/semel/store"
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

// lookAtWrites is how often the log can notice that a store takes no writes.
const lookAtWrites = 2 * time.Second

func (s *Server) watchWrites(ctx context.Context) {
	refused := false
	every(ctx, lookAtWrites, func() {
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
		if strings.HasPrefix(u.Scheme, "redis") {
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
