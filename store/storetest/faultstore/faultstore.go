// Package faultstore wraps a [semel.Store], makes its calls fail, and counts the failures, so
// that your test can check that they happened.
//
// A write can fail in several ways, and a program that handles one of them correctly may get
// another wrong. See [Form].
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
	"github.com/semelhq/semel/store"
)

// Verb is a method of a store that can fail. Watch and Close can't: they return no error that a
// caller has to resolve.
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

// Form is the way in which a call fails.
type Form string

// The forms.
const (
	// NotApplied: the call fails and never reaches the store.
	NotApplied Form = "not applied"
	// Applied: the call reaches the store, and then fails, as if the connection broke before
	// the answer.
	Applied Form = "applied but reported failed"
	// Late: the call fails at once, and reaches the store after Options.Delay, as if it was
	// still in a buffer. A read never reaches it.
	Late Form = "applied after it was reported failed"
	// Hang: the call never reaches the store, and fails when its context ends, at Control.Heal,
	// or when the wrapper is closed.
	Hang Form = "hangs until its context is done"
	// Slow: the call waits for up to Options.Delay before it reaches the store and again
	// afterwards. It doesn't fail.
	Slow Form = "slow"
)

// ErrInjected is in every error that the wrapper injects.
var ErrInjected = errors.New("faultstore: injected failure")

// Fault is one verb failing in one form.
type Fault struct {
	Verb Verb
	Form Form
}

// Options says what should fail at random. With the zero value or nil, only [Control.Next] and
// [Control.Cut] make calls fail.
type Options struct {
	// Seed makes the choice of faults repeatable, if the order of the calls is repeatable.
	Seed uint64
	// Rates has the share of calls, from 0 to 1, that fail in each form.
	Rates map[Fault]float64
	// Delay is the delay of Late and the longest delay of Slow. Defaults to 5 milliseconds.
	Delay time.Duration
	// Reached is called after each Apply that reaches the store, with the store's answer, even
	// if the caller gets an injected error. It may be called concurrently.
	Reached func(w store.Write, cur *semel.Record, applied bool, err error)
}

// Control controls the faults of one wrapper. Its methods may be called concurrently, even while
// the store is in use.
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

// New wraps a store. The wrapper has the extras of inner. Closing it waits for late writes and
// closes inner.
func New(inner semel.Store, opts *Options) (semel.Store, *Control) {
	c := &Control{script: map[Verb][]Form{}, fired: map[Fault]int{}, healed: make(chan struct{})}
	if opts != nil {
		c.opts = *opts
	}
	if c.opts.Delay == 0 {
		c.opts.Delay = 5 * time.Millisecond
	}
	c.random = rand.New(rand.NewPCG(c.opts.Seed, 0))
	v := &verbs{inner: inner, control: c}
	v.closed, v.close = context.WithCancel(context.Background())
	return v, c
}

// Next makes the next n calls of a verb fail in a form, after the failures of earlier calls of
// Next.
func (c *Control) Next(v Verb, f Form, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.script[v] = append(c.script[v], f)
	}
}

// Cut makes every call fail in a form until Heal. NotApplied or Hang simulate a store that
// can't be reached, or that the process using it has died.
func (c *Control) Cut(f Form) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = f
}

// Heal ends Cut, cancels what Next scheduled, and makes hanging calls return with an error.
// Random faults continue.
func (c *Control) Heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = ""
	clear(c.script)
	close(c.healed)
	c.healed = make(chan struct{})
}

// Fired counts the injected faults by verb and form.
func (c *Control) Fired() map[Fault]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.fired)
}

// Total counts the injected faults of the given forms, or of all forms if you give none.
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

// Settle waits until every late call has reached the store. Don't use the store meanwhile.
func (c *Control) Settle() { c.late.Wait() }

// forms is the order in which a random number is compared with the forms' rates.
var forms = []Form{NotApplied, Applied, Late, Hang, Slow}

// fate says what happens to one call.
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
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
