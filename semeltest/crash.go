package semeltest

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Point is a moment of a call at which a process can die.
type Point string

// The points. At each the next process finds something else in the store.
const (
	// BeforeClaim: nothing was stored, and your code didn't run.
	BeforeClaim Point = "before the claim"
	// AfterClaim: the call is claimed, and your code didn't run.
	AfterClaim Point = "after the claim"
	// BeforeOutcome: your code ran, and nobody knows. It looks the same as AfterClaim.
	BeforeOutcome Point = "before the outcome"
	// AfterOutcome: the outcome is stored, and the caller never heard it.
	AfterOutcome Point = "after the outcome"
)

// Crash runs f and lets the process die when a call of it reaches a point: f doesn't return
// from the engine, nothing is stored any more, and leases aren't renewed. Then another process
// starts on the same store, and [World.Engine] is its engine. f runs in a goroutine of its own,
// and its deferred functions do run, which a real crash would skip.
//
// The dead process's lease still runs: a duplicate waits or is refused until you [World.Advance]
// past it. If no call of f reaches the point, the test fails.
func (w *World) Crash(at Point, f func()) {
	w.t.Helper()
	dead := w.now
	dead.point.Store(&at)
	over := make(chan struct{})
	go func() {
		defer close(over)
		f()
	}()
	<-over
	if !dead.dead.Load() {
		dead.point.Store(nil)
		w.t.Errorf("semeltest: no call was %s: it didn't run, or was a duplicate", at)
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	cancel()
	_ = w.Engine.Close(ctx) // doesn't wait: whoever waits for the dead waits for good
	w.start()
}

// errDead is what a process gets that is dead.
var errDead = errors.New("semeltest: this process has crashed")

// process is a store as one process sees it.
type process struct {
	semel.Store
	point atomic.Pointer[Point]
	dead  atomic.Bool
}

// Apply dies where it should. A goroutine of a dead process goes no further.
func (p *process) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	before, after := BeforeOutcome, AfterOutcome
	if w.Record.State == semel.Processing {
		before, after = BeforeClaim, AfterClaim
	}
	p.dieAt(before)
	rec, applied, err := p.Store.Apply(ctx, w)
	if applied {
		p.dieAt(after)
	}
	return rec, applied, err
}

func (p *process) dieAt(point Point) {
	if at := p.point.Load(); at != nil && *at == point {
		p.dead.Store(true)
	}
	if p.dead.Load() {
		runtime.Goexit()
	}
}

// Unwrap is the store, for whoever needs its type, such as transactions.
func (p *process) Unwrap() store.Store { return p.Store }

// Get reads a record.
func (p *process) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	if p.dead.Load() {
		return nil, errDead
	}
	return p.Store.Get(ctx, id)
}
