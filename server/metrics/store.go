package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Store is a store whose calls are counted. Its extras are those of st and aren't counted.
func (m *Metrics) Store(st semel.Store) semel.Store {
	c := &counted{Store: st}
	for call, outcomes := range map[*verb][]string{&c.apply: {"apply", "ok", "stale", "error"}, &c.get: {"get", "ok", "absent", "error"}, &c.now: {"now", "ok", "error"}} {
		call.outcomes = map[string]prometheus.Counter{}
		for _, outcome := range outcomes[1:] {
			call.outcomes[outcome] = m.counters["semel_store_calls_total"].WithLabelValues(outcomes[0], outcome)
		}
		call.took = m.times["semel_store_call_seconds"].WithLabelValues(outcomes[0])
	}
	return c
}

// Unwrap lets [store.As] find the store, which can then take part in transactions.
func (c *counted) Unwrap() semel.Store { return c.Store }

type counted struct {
	semel.Store
	apply, get, now verb
}

// verb has the metrics of one call.
type verb struct {
	outcomes map[string]prometheus.Counter
	took     prometheus.Observer
}

func (v *verb) end(began time.Time, outcome string) {
	v.outcomes[outcome].Inc()
	v.took.Observe(time.Since(began).Seconds())
}

func (c *counted) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	began := time.Now()
	rec, applied, err := c.Store.Apply(ctx, w)
	switch {
	case err != nil:
		c.apply.end(began, "error")
	case applied:
		c.apply.end(began, "ok")
	default:
		c.apply.end(began, "stale")
	}
	return rec, applied, err
}

func (c *counted) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	began := time.Now()
	rec, err := c.Store.Get(ctx, id)
	switch {
	case err == nil:
		c.get.end(began, "ok")
	case errors.Is(err, store.ErrNotFound):
		c.get.end(began, "absent")
	default:
		c.get.end(began, "error")
	}
	return rec, err
}

func (c *counted) Now(ctx context.Context) (store.Instant, error) {
	now, err := c.Store.Now(ctx)
	if err != nil { // most calls ask no server, and counting would take longer
		c.now.outcomes["error"].Inc()
	}
	return now, err
}
