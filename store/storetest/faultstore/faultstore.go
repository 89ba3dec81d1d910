// Package faultstore wraps a [semel.Store] and makes it fail, on purpose and
// countably: a test that injects faults also asserts that they fired.
//
// A failed write has more than one form, and a program that is right about one
// may be wrong about another. See [Form].
package faultstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/semelhq/semel"
)

// Verb is a method of a store that can be made to fail. Watch and Close can't:
// neither can report an error that a caller has to resolve.
type Verb string

// The verbs.
const (
	Apply  Verb = "apply"
	Get    Verb = "get"
	Now    Verb = "now"
	Due    Verb = "due"
	Purge  Verb = "purge"
	Search Verb = "search"
	Append Verb = "append evidence"
)

// Form is how a call fails.
type Form string

// The forms.
const (
	// NotApplied: the call fails and never reached the store.
	NotApplied Form = "not applied"
	// Applied: the call reached the store, but its caller is told that it
	// failed, as when a connection breaks before the answer.
	Applied Form = "applied but reported failed"
	// Late: the caller is told at once that the call failed; it reaches the
	// store after Options.Delay, as when it was still in a buffer. A read that
	// is late is only NotApplied.
	Late Form = "applied after it was reported failed"
	// Hang: the call never reaches the store and returns when its context is
	// done, at Control.Heal, or when the wrapper is closed.
	Hang Form = "hangs until its context is done"
	// Slow: the call waits for up to Options.Delay, reaches the store, waits
	// again, and succeeds. Nothing is reported to have failed.
	Slow Form = "slow"
)

// ErrInjected is in every error that the wrapper makes up.
var ErrInjected = errors.New("faultstore: injected failure")

// Fault is one verb failing in one form.
type Fault struct {
	Verb Verb
	Form Form
}

// Options says what fails at random. The zero value and nil inject nothing but
// what is asked for by [Control.Next] and [Control.Cut].
type Options struct {
	// Seed makes the choice of faults repeatable, as far as the order of the
	// calls is.
	Seed uint64
	// Rates gives the share of calls, from 0 to 1, that fail in a form.
	Rates map[Fault]float64
	// Delay is that of Late and the longest of Slow. Defaults to 5
	// milliseconds.
	Delay time.Duration
	// Reached is called after each Apply that reached the store, with what the
	// store answered, whatever the caller was told. It may be called by several
	// goroutines at once.
	Reached func(w semel.Write, cur semel.Record, applied bool, err error)
}

// Control steers the faults of one wrapper. Its methods may be called
// concurrently, also while the store is used.
type Control struct {
	opts Options

	mu     sync.Mutex
	random *rand.Rand
	script map[Verb][]Form
	cut    Form
	fired  map[Fault]int
	healed chan struct{} // closed by Heal
	late   sync.WaitGroup
}

// New wraps a store. The wrapper has exactly those of the optional interfaces
// [semel.DueStore], [semel.PurgeStore], [semel.WatchStore] and
// [semel.SearchStore] that inner has, and [semel.EvidenceStore] if it has all of
// them.
// Closing it closes inner, after writes that were late have arrived.
func New(inner semel.Store, opts *Options) (semel.Store, *Control) {
	c := &Control{script: map[Verb][]Form{}, fired: map[Fault]int{}, healed: make(chan struct{})}
	if opts != nil {
		c.opts = *opts
	}
	if c.opts.Delay == 0 {
		c.opts.Delay = 5 * time.Millisecond
	}
	c.random = rand.New(rand.NewPCG(c.opts.Seed, 0))
	return wrap(inner, c), c
}

// Next makes the next n calls of a verb fail in a form, after those that were
// asked for before.
func (c *Control) Next(v Verb, f Form, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.script[v] = append(c.script[v], f)
	}
}

// Cut makes every call fail in a form until Heal: with NotApplied or Hang the
// store is out of reach, or the process that uses it has died.
func (c *Control) Cut(f Form) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = f
}

// Heal ends Cut, forgets what Next has asked for, and lets calls that hang
// return with an error. Random faults go on.
func (c *Control) Heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = ""
	clear(c.script)
	close(c.healed)
	c.healed = make(chan struct{})
}

// Fired counts the faults that happened, by verb and form.
func (c *Control) Fired() map[Fault]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.fired)
}

// Total is how many faults of the given form happened, or of all forms if none
// is given.
func (c *Control) Total(forms ...Form) int {
	n := 0
	for fault, count := range c.Fired() {
		if len(forms) == 0 {
			n += count
		}
		for _, f := range forms {
			if fault.Form == f {
				n += count
			}
		}
	}
	return n
}

// Settle waits until every call that is late has reached the store. Nobody may
// use the store meanwhile.
func (c *Control) Settle() { c.late.Wait() }

// forms in the order in which a random number is held against their rates.
var forms = []Form{NotApplied, Applied, Late, Hang, Slow}

// fate is what happens to one call.
type fate struct {
	form          Form // empty: nothing
	before, after time.Duration
	healed        <-chan struct{}
}

// choose decides what happens to one call.
func (c *Control) choose(v Verb) fate {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := fate{healed: c.healed}
	switch script := c.script[v]; {
	case c.cut != "":
		f.form = c.cut
	case len(script) > 0:
		f.form, c.script[v] = script[0], script[1:]
	case len(c.opts.Rates) > 0:
		p := c.random.Float64()
		for _, form := range forms {
			if p -= c.opts.Rates[Fault{v, form}]; p < 0 {
				f.form = form
				break
			}
		}
	}
	if f.form != "" {
		c.fired[Fault{v, f.form}]++
	}
	if f.form == Slow {
		f.before = time.Duration(c.random.Int64N(int64(c.opts.Delay) + 1))
		f.after = time.Duration(c.random.Int64N(int64(c.opts.Delay) + 1))
	}
	return f
}

func failed(v Verb, f Form) error { return fmt.Errorf("%w: %s %s", ErrInjected, v, f) }

// pause waits for d or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
