package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Options configures a [Dispatcher].
type Options struct {
	// Destinations are the receivers by name. At least one is required. Messages to other
	// destinations wait for dispatchers that have them.
	Destinations map[string]Destination
	// Interval is the pause between two scans for due messages. Defaults to 1 second.
	Interval time.Duration
	// Queue is how many messages of one destination wait in memory. Further ones are
	// postponed in the store. Defaults to 1024.
	Queue int
	// Events observes the dispatcher. Optional.
	Events *Events
}

// Defaults of [Options].
const (
	DefaultInterval = time.Second
	DefaultQueue    = 1024
)

// A Dispatcher delivers the messages of one engine's store. Any number of
// dispatchers may work on one store. Its methods may be called concurrently; Run
// once at a time.
type Dispatcher struct {
	engine *semel.Engine
	store  bounded
	every  time.Duration
	events Events
	lines  map[string]*line
	limit  int          // of a page, and of the messages of lanes in one look; scanLimit
	seen   atomic.Int64 // an Instant: everything due then has been scanned

	// low is a place in the due index before which nothing was for this dispatcher when all
	// was scanned last, which was at whole. Only scans use them.
	low   string
	whole store.Instant

	kick chan struct{} // asks for a scan
	late chan job      // to be postponed in the store

	mu    sync.Mutex
	noted map[string]laneMessage // to be put into their lanes, by the ids of the messages
	busy  map[string]bool        // jobs that are queued or running; true: a lane to be worked on again

	// crash is called at the named points of a delivery by tests. An error ends
	// the work there, as if the process had died.
	crash func(point string) error
}

// line is a destination with its queue.
type line struct {
	Destination
	name    string
	queue   chan job
	breaker breaker
	pace    *rate.Limiter
}

// job is one thing to do for a destination: to deliver a message, or to work on a
// lane.
type job struct {
	line *line
	call semel.ID // that sent the message
	id   string   // of the message
	lane *laneID  // instead of the two
}

func (j job) name() string {
	if j.lane != nil {
		return j.lane.digest()
	}
	return j.id
}

// operation names the calls that deliver messages to a destination.
func operation(destination string) string { return "semel.dispatch/" + destination }

// laneOperation is the name of the calls that hold a lane; see lane.go.
func laneOperation(destination string) string { return "semel.dispatch.lane/" + destination }

// deliverer is the principal of both. A service's caller has another principal or none,
// so it can't begin or end these calls and make a message count as delivered.
const deliverer = "semel.dispatch"

// New makes a dispatcher on an engine, registers its operations, and makes it the engine's
// dispatcher. Nothing is delivered before Run. The error reports all problems with the
// options. The store must have a [store.DueIndex].
func New(engine *semel.Engine, opts Options) (*Dispatcher, error) {
	due := engine.Internal().Store().Extras().Due
	if due == nil {
		return nil, &semel.Error{Code: semel.CodeUnsupported, Message: "the store can't tell which messages are due"}
	}
	d := &Dispatcher{
		engine: engine, store: bounded{engine.Internal().Store(), due, semel.DefaultStoreTimeout}, every: cmp.Or(opts.Interval, DefaultInterval),
		lines: map[string]*line{}, kick: make(chan struct{}, 1), late: make(chan job, 4*DefaultQueue), busy: map[string]bool{}, noted: map[string]laneMessage{},
		limit: scanLimit, crash: func(string) error { return nil },
	}
	if opts.Events != nil {
		d.events = *opts.Events
	}
	var errs []error
	var ops []semel.Operation
	if len(opts.Destinations) == 0 || opts.Interval < 0 || opts.Queue < 0 {
		errs = append(errs, errors.New("dispatch: Destinations may not be empty, Interval and Queue not negative"))
	}
	for _, name := range slices.Sorted(maps.Keys(opts.Destinations)) {
		t := opts.Destinations[name]
		if name == "" {
			errs = append(errs, errors.New("dispatch: a destination needs a name"))
			continue
		}
		if err := t.validate(name); err != nil {
			errs = append(errs, err)
			continue
		}
		t = t.withDefaults()
		d.lines[name] = &line{
			Destination: t, name: name, queue: make(chan job, cmp.Or(opts.Queue, DefaultQueue)),
			breaker: breaker{after: t.BreakAfter, pause: t.BreakFor}, pace: t.limiter(),
		}
		ops = append(ops,
			semel.Operation{
				Name: operation(name), Lease: t.Lease, Window: t.Window,
				// At least once: send again after an attempt with an unknown result.
				OnFailure: semel.RetryFailure, OnAbandoned: semel.RetryAbandoned,
			},
			semel.Operation{
				Name: laneOperation(name), Lease: t.Lease, Window: time.Second,
				OnFailure: semel.RetryFailure, OnAbandoned: semel.RetryAbandoned,
			})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := engine.Register(ops...); err != nil {
		return nil, fmt.Errorf("dispatch: %w", err)
	}
	engine.Internal().SetDispatcher(d.Dispatch)
	return d, nil
}

// Run delivers until ctx is done, and then finishes the tries that have begun. It
// returns the cause of ctx's end.
func (d *Dispatcher) Run(ctx context.Context) error {
	var work sync.WaitGroup
	for _, l := range d.lines {
		for range l.Concurrency {
			work.Go(func() { d.work(ctx, l) })
		}
	}
	for range 4 {
		work.Go(func() { d.putOff(ctx) })
	}
	d.scanLoop(ctx)
	work.Wait()
	return context.Cause(ctx)
}

// Dispatch queues the messages of a record that may be due; see
// [semel.Internal.SetDispatcher].
func (d *Dispatcher) Dispatch(rec *semel.Record) {
	for i := range rec.Outbox {
		if m, ok := d.fresh(rec, i, max(rec.UpdatedAt, store.Instant(d.seen.Load()))); ok {
			d.note(m)
			d.wake()
		}
	}
	d.takeUnordered(rec)
}

// enqueue queues a job unless it is queued or running. It reports false if there is no
// room.
func (d *Dispatcher) enqueue(j job) bool {
	name := j.name()
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, busy := d.busy[name]; busy {
		d.busy[name] = j.lane != nil
		return true
	}
	select {
	case j.line.queue <- j:
		d.busy[name] = false
		return true
	default:
		return false
	}
}

// free ends a job. It reports whether the job was requested again meanwhile.
func (d *Dispatcher) free(j job) (again bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	again = d.busy[j.name()]
	delete(d.busy, j.name())
	return again
}

// wake asks for a scan now.
func (d *Dispatcher) wake() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// work does the jobs of one destination.
func (d *Dispatcher) work(ctx context.Context, l *line) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-l.queue:
			if ctx.Err() != nil {
				return
			}
			var again bool
			if j.lane != nil {
				again = d.workLane(ctx, l, *j.lane)
			} else {
				d.workMessage(ctx, l, j)
			}
			if again = d.free(j) || again; again && !d.enqueue(j) {
				d.wake() // it is due
			}
		}
	}
}

// report passes a failure that isn't a receiver's to Events.Trouble.
func (d *Dispatcher) report(err error) {
	if err != nil && d.events.Trouble != nil && !errors.Is(err, errCrash) {
		d.events.Trouble(err)
	}
}

// errCrash is what tests end a delivery with.
var errCrash = errors.New("dispatch: crashed by a test")
