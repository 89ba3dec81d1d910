// Package semeltest is for tests of your own code that runs calls through an engine. It gives
// you an engine in memory with a clock that you move, crashes at a chosen point, and the
// question whether a call ran once.
//
//	w := semeltest.New(t, &semel.Options{Operations: ops})
//	w.Crash(semeltest.BeforeOutcome, func() { consume(w.Engine, message) })
//	w.Advance(time.Minute) // the lease of the process that died is over
//	consume(w.Engine, message)
//	w.RanOnce(id)
//
// For handlers of net/http, package semelhttptest adds a guard and requests.
package semeltest

import (
	"context"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// World is an engine with its store and clock. It ends with the test. Don't call its methods
// concurrently; the engine may be used by any number of goroutines, as always.
type World struct {
	// Engine is the engine of the running process. After [World.Crash] it is another one.
	Engine *semel.Engine
	// Store keeps the records, as a disk would: it outlives crashes. It is nil on a store of
	// your own, see [NewOn].
	Store *memstore.Store

	t    testing.TB
	disk semel.Store
	opts *semel.Options
	now  *process
}

// New makes an engine on a store in memory. Its options may be nil.
func New(t testing.TB, opts *semel.Options) *World {
	t.Helper()
	st := memstore.New()
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("semeltest: %v", err)
		}
	})
	w := NewOn(t, st, opts)
	w.Store = st
	return w
}

// NewOn is New on your own store. It stays yours: close it when the test is over. Its records
// stay, too, so give each test keys or a database of its own. Its clock can't be moved, and
// [World.Crash] doesn't see writes in transactions of yours.
func NewOn(t testing.TB, st semel.Store, opts *semel.Options) *World {
	t.Helper()
	w := &World{t: t, disk: st, opts: quiet(opts)}
	w.start()
	t.Cleanup(func() {
		if err := w.Engine.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("semeltest: %v", err)
		}
	})
	return w
}

// quiet silences the engine's warning that nothing sweeps: tests sweep when they mean to.
func quiet(opts *semel.Options) *semel.Options {
	var o semel.Options
	if opts != nil {
		o = *opts
	}
	var events semel.Events
	if o.Events != nil {
		events = *o.Events
	}
	if events.Unswept == nil {
		events.Unswept = func(semel.Unswept) {}
	}
	o.Events = &events
	return &o
}

// start starts a process on the store.
func (w *World) start() {
	w.t.Helper()
	w.now = &process{Store: w.disk}
	engine, err := semel.New(w.now, w.opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Engine = engine
}

// Advance moves the clock of leases and windows, and has the engine sweep the records that are
// due by then: it settles the attempts of dead processes and deletes expired records.
//
// Only the clock of the store in memory can be moved: on another one the test ends.
func (w *World) Advance(d time.Duration) {
	w.t.Helper()
	if w.Store == nil {
		w.t.Fatal("semeltest: the clock of your own store can't be moved: use New")
	}
	w.Store.Advance(d)
	if _, err := w.Engine.Sweep(w.t.Context()); err != nil {
		w.t.Errorf("semeltest: %v", err)
	}
}

// RanOnce reports an error unless the call has an outcome and took one attempt. A call that
// was aborted, held or tried again after a crash didn't run once.
func (w *World) RanOnce(id semel.ID) {
	w.t.Helper()
	switch rec, err := w.Engine.Lookup(w.t.Context(), id); {
	case err != nil:
		w.t.Errorf("semeltest: %s %s has no record: %v", id.Operation, id.Key, err)
	case rec.Attempt != 1:
		w.t.Errorf("semeltest: %s %s took %d attempts", id.Operation, id.Key, rec.Attempt)
	case rec.Disposition != store.DispositionCompleted:
		w.t.Errorf("semeltest: %s %s is %s %s, not completed", id.Operation, id.Key, rec.State, rec.Disposition)
	}
}
