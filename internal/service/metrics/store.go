package metrics

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Store returns st with its calls counted and its queues in these metrics. It also counts the
// extras that the engine calls for sweeps; all other extras are st's own.
func (m *Metrics) Store(st semel.Store) semel.Store {
	verb := func(name, other string) *verb {
		v := &verb{every: 1, took: m.times["semel_store_call_seconds"].WithLabelValues(name)}
		for outcome, c := range map[string]*prometheus.Counter{"ok": &v.ok, "error": &v.failed, other: &v.other} {
			if outcome != "" {
				*c = m.counters["semel_store_calls_total"].WithLabelValues(name, outcome)
			}
		}
		return v
	}
	c := &counted{Store: st, extras: st.Extras(), apply: verb("apply", "stale"), get: verb("get", "absent"), now: verb("now", "")}
	if m.queues = c.extras.Queues; c.extras.Local {
		c.get.every = sampled // it takes little more time than two looks at a clock
	}
	if d := c.extras.Due; d != nil {
		c.extras.Due = counting[store.DueQuery, store.DuePage]{verb("due", ""), d.Due}
	}
	if s := c.extras.Search; s != nil {
		c.extras.Search = counting[store.Query, store.Page]{verb("search", ""), s.Search}
	}
	if p := c.extras.Purge; p != nil {
		c.extras.Purge = counting[[]store.Ref, int]{verb("purge", ""), p.Purge}
	}
	return c
}

// Unwrap lets [store.As] find the store, which can then take part in transactions.
func (c *counted) Unwrap() semel.Store { return c.Store }

type counted struct {
	semel.Store
	extras          store.Extras
	apply, get, now *verb
}

// sampled is of how many reads in this process one is timed.
const sampled = 8

type verb struct {
	ok, failed, other prometheus.Counter
	took              prometheus.Observer
	calls             atomic.Uint64
	every             uint64
}

// began is when a call that is timed began, by a clock that only tells how long things take:
// looking at it takes half of the time of [time.Now].
func (v *verb) began() time.Duration {
	if v.every > 1 && v.calls.Add(1)%v.every != 0 {
		return untimed
	}
	return time.Since(start)
}

var start = time.Now()

const untimed = time.Duration(math.MinInt64)

// end counts a call; other says that it was answered, and came to nothing.
func (v *verb) end(began time.Duration, err error, other bool) {
	switch {
	case other:
		v.other.Inc()
	case err != nil:
		v.failed.Inc()
	default:
		v.ok.Inc()
	}
	if began != untimed {
		v.took.Observe((time.Since(start) - began).Seconds())
	}
}

func (c *counted) Extras() store.Extras { return c.extras }

func (c *counted) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	began := c.apply.began()
	rec, applied, err := c.Store.Apply(ctx, w)
	c.apply.end(began, err, err == nil && !applied)
	return rec, applied, err
}

func (c *counted) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	began := c.get.began()
	rec, err := c.Store.Get(ctx, id)
	c.get.end(began, err, err != nil && errors.Is(err, store.ErrNotFound))
	return rec, err
}

// Now isn't timed: most calls ask no server.
func (c *counted) Now(ctx context.Context) (store.Instant, error) {
	now, err := c.Store.Now(ctx)
	c.now.end(untimed, err, false)
	return now, err
}

type counting[Q, A any] struct {
	*verb
	call func(context.Context, Q) (A, error)
}

func (c counting[Q, A]) do(ctx context.Context, q Q) (A, error) {
	began := c.began()
	a, err := c.call(ctx, q)
	c.end(began, err, false)
	return a, err
}

func (c counting[Q, A]) Due(ctx context.Context, q Q) (A, error)    { return c.do(ctx, q) }
func (c counting[Q, A]) Search(ctx context.Context, q Q) (A, error) { return c.do(ctx, q) }
func (c counting[Q, A]) Purge(ctx context.Context, q Q) (A, error)  { return c.do(ctx, q) }
