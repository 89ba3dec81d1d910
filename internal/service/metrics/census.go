package metrics

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/store"
)

// Census counts the attempts in a store that are in flight or held. It searches for them page
// by page, and pauses so that it never takes more than a tenth of the time, however large a
// store is. Its methods may be called concurrently.
type Census struct {
	store semel.Store

	mu   sync.Mutex
	last *count // of the last time that all was found
}

// count is the result of one pass through the store: attempts by state.
type count struct {
	attempts map[string]int
	oldest   map[string]store.Instant
	effects  int
	of       string // the operation of all held calls, after " of "; empty if they have several
}

// The states of attempts. Attempts held for unverified callers have their own: strangers can
// cause them, and mustn't wake anybody.
var attemptStates = []string{"in_flight", "held", "held_unverified"}

func stateOf(rec *semel.Record) string {
	switch {
	case !rec.Held:
		return attemptStates[0]
	case rec.BoundTo == "":
		return attemptStates[1]
	}
	return attemptStates[2]
}

// NewCensus makes the census of a store. It knows nothing before Run.
func NewCensus(st semel.Store) *Census { return &Census{store: st} }

const (
	censusPause = 2 * time.Second // after the last page, and after an error
	censusTime  = 5 * time.Second // for a page
)

// Run counts until ctx is done. It returns at once if the store can't list its records.
func (c *Census) Run(ctx context.Context) {
	search := c.store.Extras().Search
	if search == nil {
		return
	}
	q := store.Query{State: store.Processing, Limit: store.MaxSearchLimit}
	next := newCount()
	for {
		began := time.Now()
		call, cancel := context.WithTimeout(ctx, censusTime)
		page, err := search.Search(call, q)
		cancel()
		pause := 9 * time.Since(began)
		if err == nil {
			next.take(page.Records)
			q.Cursor = page.Next
		}
		if err != nil || q.Cursor == "" {
			pause = max(pause, censusPause)
		}
		if err == nil && q.Cursor == "" {
			c.mu.Lock()
			c.last, next = next, newCount()
			c.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func newCount() *count {
	return &count{attempts: map[string]int{}, oldest: map[string]store.Instant{}}
}

func (c *count) take(recs []semel.Record) {
	for i := range recs {
		rec := &recs[i]
		if door.Internal(rec.ID.Operation) {
			continue
		}
		state := stateOf(rec)
		if c.attempts[state]++; state == "held" {
			if of := " of " + rec.ID.Operation; c.attempts[state] == 1 {
				c.of = of
			} else if c.of != of {
				c.of = ""
			}
		}
		if was := c.oldest[state]; was == 0 || rec.StartedAt < was {
			c.oldest[state] = rec.StartedAt
		}
		for _, ef := range rec.Effects {
			if ef.State == store.EffectStarted {
				c.effects++
			}
		}
	}
}

// Waiting says how many calls wait for somebody's decision, and for how long, as they were counted
// last. Those of unverified callers don't count: strangers can cause them. now is the store's time.
func (c *Census) Waiting(now store.Instant) (calls int, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		return 0, "not counted yet"
	}
	age := max(now.Sub(c.last.oldest["held"]), 0).Round(time.Second)
	switch calls = c.last.attempts["held"]; calls {
	case 0:
		text = "no call waits for a decision"
	case 1:
		text = fmt.Sprintf("1 call%s waits for a decision, for %v", c.last.of, age)
	default:
		text = fmt.Sprintf("%d calls%s wait for a decision, the oldest for %v", calls, c.last.of, age)
	}
	if n := c.last.attempts["held_unverified"]; n > 0 {
		text += fmt.Sprintf("; held for unverified callers: %d", n)
	}
	return calls, text
}

// Set sets the gauges, once a count has been through the store. now is the store's time.
func (c *Census) Set(set Set, now store.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		return
	}
	for _, state := range attemptStates {
		age := 0.0
		if at := c.last.oldest[state]; at != 0 {
			age = max(now.Sub(at).Seconds(), 0)
		}
		set("semel_attempts", float64(c.last.attempts[state]), state)
		set("semel_oldest_attempt_seconds", age, state)
	}
	set("semel_effects_open", float64(c.last.effects))
}
