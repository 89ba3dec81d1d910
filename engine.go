package semel

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options configures an [Engine]. The zero value, and nil, mean the documented
// defaults.
type Options struct {
	// Operations are registered at once; see [Engine.Register].
	Operations []Operation
	// Events observes the engine. Optional.
	Events *Events
	// Node names this engine in the records it holds, for people. Defaults to
	// the host name and the process id.
	Node string
	// StoreTimeout bounds how long a caller waits for one answer of the store,
	// resolving an unknown one included. Defaults to 5 seconds.
	StoreTimeout time.Duration
	// MaxWaiters bounds the deliveries that wait for an outcome at one time;
	// further ones get in_flight at once. A tenant may have as many as there are
	// places left free: one alone gets half of them, and n busy ones leave one in
	// n+1 to others. Defaults to 10,000.
	MaxWaiters int
	// ClockSkew is how far a client's clock may be off when it says when it
	// first sent a call; see Operation.RefuseLate. Defaults to 1 minute.
	ClockSkew time.Duration
	// PurgeRate bounds how many expired records [Engine.Run] deletes per second.
	// Zero: as fast as the store can.
	PurgeRate int
	// Archive keeps records of operations with Archive elsewhere, before they
	// are purged. What it returned nil for must be durable. It may get a record
	// twice: ID and Revision tell. Several engines may call it with the same.
	Archive func(ctx context.Context, recs []Record) error
	// Witness makes the entries of the evidence log. Needed where an operation
	// demands evidence; see package evidence.
	Witness Witness
}

// Defaults of [Options].
const (
	DefaultStoreTimeout = 5 * time.Second
	DefaultMaxWaiters   = 10_000
	DefaultClockSkew    = time.Minute
)

// Engine runs calls on a [Store]. Any number of engines, in any number of
// processes, may use one store. All methods may be called concurrently.
//
// The engine starts nothing by itself: the owner runs [Engine.Run] where
// abandoned and expired records should be attended to without waiting for a
// delivery.
type Engine struct {
	store  Store
	local  LocalStore // the store, if it is one
	start  time.Time  // what local times are counted from
	first  Instant    // the same, by the clock of a local store
	events Events
	node   string
	opts   Options

	ops      atomic.Pointer[map[string]*operation]
	register sync.Mutex

	dispatcher atomic.Pointer[Dispatcher]

	epoch atomic.Int64 // of the store, as an Instant; see NewEpoch

	sweeps   sweeps
	archive  archiving
	releases releases
	internal *operation // for records that belong to this module

	revPrefix [8]byte
	revCount  atomic.Uint64

	waiters  waiters
	throttle throttle
	limits   storeLimits

	// background counts the goroutines that resolve writes after their caller
	// has gone; done ends them.
	background sync.WaitGroup
	closeMu    sync.RWMutex
	closed     bool
	done       context.Context
	stop       context.CancelFunc
}

// operation is a registered [Operation] with what the engine learns about it.
type operation struct {
	Operation
	engine  *Engine
	latency latency
	leases  leases
	asking  chan struct{} // holds one for each open question to the reconciler
}

// New makes an engine on a store. Options may be nil. Every problem with the
// declared operations is reported at once.
func New(store Store, opts *Options) (*Engine, error) {
	if store == nil {
		return nil, errors.New("semel: New needs a store")
	}
	e := &Engine{store: store, start: time.Now()}
	if local, ok := store.(LocalStore); ok {
		if now, err := store.Now(context.Background()); err == nil {
			e.local, e.first = local, now
		}
	}
	if opts != nil {
		e.opts = *opts
	}
	e.opts.StoreTimeout = cmp.Or(e.opts.StoreTimeout, DefaultStoreTimeout)
	e.opts.MaxWaiters = cmp.Or(e.opts.MaxWaiters, DefaultMaxWaiters)
	e.opts.ClockSkew = cmp.Or(e.opts.ClockSkew, DefaultClockSkew)
	if e.opts.StoreTimeout < 0 || e.opts.MaxWaiters < 0 || e.opts.ClockSkew < 0 || e.opts.PurgeRate < 0 {
		return nil, errors.New("semel: StoreTimeout, MaxWaiters, ClockSkew and PurgeRate may not be negative")
	}
	e.limits.limit = e.opts.StoreTimeout
	if len(e.opts.Node) > maxNameLen || !validText(e.opts.Node) {
		return nil, fmt.Errorf("semel: Node has more than %d bytes, is not valid UTF-8 or has a NUL byte", maxNameLen)
	}
	if e.opts.Events != nil {
		e.events = *e.opts.Events
	}
	e.node = e.opts.Node
	if e.node == "" {
		host, _ := os.Hostname()
		e.node = fmt.Sprintf("%s-%d", cmp.Or(host, "localhost"), os.Getpid())
	}
	if _, err := rand.Read(e.revPrefix[:]); err != nil {
		return nil, fmt.Errorf("semel: random prefix of revisions: %w", err)
	}
	e.waiters.init(e.opts.MaxWaiters)
	e.internal = e.newOperation(Operation{Name: dispatchPrefix})
	e.done, e.stop = context.WithCancel(context.Background())
	e.ops.Store(&map[string]*operation{})
	if err := e.Register(e.opts.Operations...); err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

// Register adds operations, or replaces those of the same name, all or none.
// Attempts that are running keep the declaration they started with.
func (e *Engine) Register(ops ...Operation) error {
	e.register.Lock()
	defer e.register.Unlock()
	next := maps.Clone(*e.ops.Load())
	var errs []error
	seen := map[string]bool{}
	for _, op := range ops {
		if err := op.Validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := e.supportsEvidence(&op); err != nil {
			errs = append(errs, err)
			continue
		}
		if seen[op.Name] {
			errs = append(errs, &Error{Code: CodeInvalidOperation, Message: fmt.Sprintf("operation %q is declared twice", op.Name)})
			continue
		}
		seen[op.Name] = true
		next[op.Name] = e.newOperation(op)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	e.ops.Store(&next)
	return nil
}

func (e *Engine) newOperation(op Operation) *operation {
	op = op.withDefaults()
	return &operation{
		Operation: op, engine: e, leases: leases{engine: e, period: op.Lease / 3}, asking: make(chan struct{}, maxReconciling),
	}
}

// Operation returns a registered operation with its defaults filled in.
func (e *Engine) Operation(name string) (Operation, bool) {
	op, ok := (*e.ops.Load())[name]
	if !ok {
		return Operation{}, false
	}
	return op.Operation, true
}

// Operations returns the registered operations by name, with their defaults
// filled in.
func (e *Engine) Operations() []Operation {
	ops := *e.ops.Load()
	list := make([]Operation, 0, len(ops))
	for _, name := range slices.Sorted(maps.Keys(ops)) {
		list = append(list, ops[name].Operation)
	}
	return list
}

// Store is the store that the engine was made on.
func (e *Engine) Store() Store { return e.store }

// Lookup returns the record of an identity. An expired one is not found.
func (e *Engine) Lookup(ctx context.Context, id ID) (Record, error) {
	rec, err := e.get(ctx, id)
	if err != nil {
		return Record{}, e.storeError("get", id, err)
	}
	now, err := e.now(ctx)
	if err != nil {
		return Record{}, err
	}
	if rec.Expired(now) {
		return Record{}, ErrNotFound
	}
	return rec, nil
}

// Close refuses further calls and waits until what the engine does in the
// background has ended, or ctx is done. It does not end running attempts, whose
// leases go on being renewed until they end, and does not close the store.
func (e *Engine) Close(ctx context.Context) error {
	e.closeMu.Lock()
	e.closed = true
	e.closeMu.Unlock()
	e.stop()
	idle := make(chan struct{})
	go func() {
		e.background.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// goBackground runs f until the engine closes. It reports false, and runs
// nothing, when the engine is closed already.
func (e *Engine) goBackground(f func(ctx context.Context)) bool {
	e.closeMu.RLock()
	defer e.closeMu.RUnlock()
	if e.closed {
		return false
	}
	e.background.Go(func() { f(e.done) })
	return true
}

// newRevision names a write: a random prefix for this engine and a counter.
func (e *Engine) newRevision() (r Revision) {
	copy(r[:8], e.revPrefix[:])
	binary.BigEndian.PutUint64(r[8:], e.revCount.Add(1))
	return r
}

// elapsed is the time since the engine was made, by the process's own monotonic
// clock. Holders judge their own leases by it, because it needs no store. The
// clock of a local store is such a clock too, and is read anyway.
func (e *Engine) elapsed() time.Duration {
	if e.local != nil {
		if now, err := e.store.Now(context.Background()); err == nil {
			return now.Sub(e.first)
		}
	}
	return time.Since(e.start)
}

func (e *Engine) now(ctx context.Context) (Instant, error) {
	if e.local == nil {
		call, own := e.storeCall(ctx)
		if own {
			defer call.end()
		}
		ctx = call
	}
	now, err := e.store.Now(ctx)
	if err != nil {
		return 0, e.storeError("now", ID{}, err)
	}
	return now, nil
}

// limited is ctx with the limit of a call to the store, for calls that write nothing
// and may be given up with their caller.
func (e *Engine) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.(*storeCall); ok || e.local != nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, e.opts.StoreTimeout)
}

// get reads a record within the limit of a call.
func (e *Engine) get(ctx context.Context, id ID) (Record, error) {
	ctx, cancel := e.limited(ctx)
	defer cancel()
	return e.store.Get(ctx, id)
}

// storeError reports a failed read. What a read could not tell is not known.
func (e *Engine) storeError(call string, id ID, err error) error {
	if errors.Is(err, ErrNotFound) {
		return err
	}
	if e.events.StoreFailed != nil {
		e.events.StoreFailed(StoreFailedEvent{ID: id, Call: call, Err: err, Try: 1})
	}
	return &Error{Code: CodeStoreUnavailable, Err: err}
}
