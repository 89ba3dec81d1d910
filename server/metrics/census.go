package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/store"
)

// Census counts the attempts in a store that are in flight or held. It looks through the
// store page by page, and pauses after each, so that a large store isn't read all the time.
// Its methods may be called concurrently.
type Census struct {
	store semel.Store

	mu   sync.Mutex
	last *count // of the last time that all was looked through
	next count
}

type count struct {
	attempts, effects int
	held              int
	oldest            map[bool]store.Instant // by whether held
}

// NewCensus makes the census of a store. It knows nothing before Run.
func NewCensus(st semel.Store) *Census { return &Census{store: st} }

const (
	censusPage  = time.Second      // between two pages
	censusPause = 10 * time.Second // after the last one
	censusTime  = 5 * time.Second  // for a page
)

// Run counts until ctx is done. A store that can't list its records is left alone.
func (c *Census) Run(ctx context.Context) {
	search := c.store.Extras().Search
	if search == nil {
		return
	}
	q := store.Query{State: store.Processing, Limit: store.MaxSearchLimit}
	c.next = count{oldest: map[bool]store.Instant{}}
	for {
		pause := censusPage
		call, cancel := context.WithTimeout(ctx, censusTime)
		page, err := search.Search(call, q)
		cancel()
		if err != nil {
			page.Next = q.Cursor // again
		}
		c.take(page.Records)
		if q.Cursor = page.Next; q.Cursor == "" && err == nil {
			pause = censusPause
			c.finish()
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

func (c *Census) take(recs []semel.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range recs {
		rec := &recs[i]
		if door.Internal(rec.ID.Operation) {
			continue
		}
		if c.next.attempts++; rec.Held {
			c.next.held++
		}
		if was := c.next.oldest[rec.Held]; was == 0 || rec.StartedAt < was {
			c.next.oldest[rec.Held] = rec.StartedAt
		}
		for _, ef := range rec.Effects {
			if ef.State == store.EffectStarted {
				c.next.effects++
			}
		}
	}
}

func (c *Census) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := c.next
	c.last, c.next = &done, count{oldest: map[bool]store.Instant{}}
}

// Set sets the gauges, if everything was looked through at least once. now is the store's
// time.
func (c *Census) Set(set Set, now store.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		return
	}
	set("semel_attempts", float64(c.last.held), "held")
	set("semel_attempts", float64(c.last.attempts-c.last.held), "in_flight")
	for held, state := range map[bool]string{true: "held", false: "in_flight"} {
		age := 0.0
		if at := c.last.oldest[held]; at != 0 {
			age = max(now.Sub(at).Seconds(), 0)
		}
		set("semel_oldest_attempt_seconds", age, state)
	}
	set("semel_effects_open", float64(c.last.effects))
}
