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
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/engine/background"
	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/internal/engine/guard"
	"github.com/semelhq/semel/internal/engine/ratelimit"
	"github.com/semelhq/semel/internal/engine/renewal"
	"github.com/semelhq/semel/internal/engine/waiting"
	"github.com/semelhq/semel/store"
)

// Options configures an [Engine]. Zero values and nil mean the documented defaults.
type Options struct {
	// Operations are registered by [New]; see [Engine.Register].
	Operations []Operation
	// Node names this engine in the records it holds, for people. Defaults to
	// the host name and the process id.
	Node string

	// Observers, evidence and archive.

	// Events observes the engine. Optional.
	Events *Events
	// Witness makes the entries of the evidence log. An operation that demands evidence
	// needs it; see package evidence.
	Witness Witness
	// Archive keeps the records of operations with [ArchiveExpired] elsewhere, before they are
	// purged. When it returns nil, they must be durable. It may get a record twice, with
	// the same ID and Revision, and several engines may call it with the same records.
	Archive func(ctx context.Context, recs []Record) error

	// Bounds.

	// StoreTimeout bounds how long a caller waits for one answer of the store, including the
	// time it takes to resolve an unknown one. Defaults to 5 seconds.
	StoreTimeout time.Duration
	// MaxWaiters bounds how many deliveries wait for an outcome at one time; further ones get
	// in_flight at once. One busy tenant may take half of the places, and n busy ones leave one
	// in n+1 to the others. As many again may wait for their turn, shared out by network; see
	// [Internal.Turn]. Defaults to 10,000.
	MaxWaiters int
	// Quotas bound how much callers may store. Off by default.
	Quotas Quotas
	// ClockSkew is how far a client's clock may be off when it says when it
	// first sent a call; see Operation.RefuseLate. Defaults to 1 minute.
	ClockSkew time.Duration

	// The deletion of expired records.

	// PurgeInterval is the shortest time between two searches for expired records to delete.
	// Sweeps do everything else regardless of it. Zero: every sweep searches.
	PurgeInterval time.Duration
	// PurgeRate bounds how many expired records sweeps delete per second. Zero: as fast as
	// the store can.
	PurgeRate int
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
// The engine starts nothing by itself. Run [Engine.Run] to settle abandoned records and
// to remove expired ones without waiting for a delivery. Without it the engine warns once;
// see [Events].Unswept.
type Engine struct {
	store  Store
	extras store.Extras
	start  time.Time // what local times are counted from
	events Events
	node   string
	opts   Options

	ops      atomic.Pointer[map[string]*operation]
	register sync.Mutex
	// declarations counts the calls of Internal.Redeclare. While one is in progress, declaring has
	// what will be registered if it succeeds.
	declarations int
	declaring    atomic.Pointer[map[string]*operation]

	dispatcher atomic.Pointer[func(*Record)]

	epoch atomic.Int64 // of the store, as an Instant; see NewEpoch
	// erasedRead is when the list of erasures was last read, as an Instant.
	erasedRead atomic.Int64

	sweeps   sweeps
	archive  guard.Single
	releases releases
	internal *operation // for records that belong to this module

	revPrefix [8]byte
	revCount  atomic.Uint64

	waiters  waiters
	turns    turns
	throttle ratelimit.Table
	quotas   quotas

	background background.Group // resolves writes after their caller has gone; done ends it
	done       context.Context
	stop       context.CancelFunc
}

// operation is a registered [Operation] and the engine's state for it.
type operation struct {
	Operation
	engine *Engine
	// declared is the call of Internal.Redeclare in which it was registered; 0 for none.
	declared int
	latency  waiting.Latency
	leases   renewal.Leases[*Attempt]
	asking   chan struct{} // bounds the concurrent calls of the reconciler
	// compensating bounds the compensations that are resumed.
	compensating chan struct{}
}

// New makes an engine on a store. Options may be nil. The error names every problem with
// the declared operations.
func New(st Store, opts *Options) (*Engine, error) {
	if st == nil {
		return nil, errors.New("semel: New needs a store")
	}
	e := &Engine{store: st, extras: st.Extras(), start: time.Now()}
	if opts != nil {
		e.opts = *opts
	}
	e.opts.StoreTimeout = cmp.Or(e.opts.StoreTimeout, DefaultStoreTimeout)
	e.opts.MaxWaiters = cmp.Or(e.opts.MaxWaiters, DefaultMaxWaiters)
	e.opts.ClockSkew = cmp.Or(e.opts.ClockSkew, DefaultClockSkew)
	if e.opts.StoreTimeout < 0 || e.opts.MaxWaiters < 0 || min(e.opts.ClockSkew, e.opts.PurgeInterval) < 0 || e.opts.PurgeRate < 0 {
		return nil, errors.New("semel: StoreTimeout, MaxWaiters, ClockSkew, PurgeInterval and PurgeRate may not be negative")
	}
	if err := e.quotas.init(e.opts.Quotas); err != nil {
		return nil, err
	}
	if len(e.opts.Node) > store.MaxNameLen || !store.ValidText(e.opts.Node) {
		return nil, fmt.Errorf("semel: Node has more than %d bytes, is not valid UTF-8 or has a NUL byte", store.MaxNameLen)
	}
	if e.opts.Events != nil {
		e.events = *e.opts.Events
	}
	if e.events.Unswept == nil {
		e.events.Unswept = e.warnUnswept
	}
	e.node = e.opts.Node
	if e.node == "" {
		host, _ := os.Hostname()
		e.node = fmt.Sprintf("%s-%d", cmp.Or(host, "localhost"), os.Getpid())
	}
	if _, err := rand.Read(e.revPrefix[:]); err != nil {
		return nil, fmt.Errorf("semel: random prefix of revisions: %w", err)
	}
	e.waiters.Max, e.turns.seats.Max = e.opts.MaxWaiters, e.opts.MaxWaiters
	e.internal = e.newOperation(Operation{Name: dispatchPrefix})
	e.done, e.stop = context.WithCancel(context.Background())
	e.ops.Store(&map[string]*operation{})
	if err := e.Register(e.opts.Operations...); err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

// Register adds operations and replaces registered ones by name, all or none. Running attempts
// keep the declaration that they started with.
func (e *Engine) Register(ops ...Operation) error {
	e.register.Lock()
	defer e.register.Unlock()
	into, declared := &e.ops, 0
	if e.declaring.Load() != nil {
		into, declared = &e.declaring, e.declarations
	}
	next := maps.Clone(*into.Load())
	var errs []error
	seen := map[string]bool{}
	for _, op := range ops {
		err := cmp.Or(op.Validate(), e.supportsEvidence(&op))
		if err == nil && seen[op.Name] {
			err = &Error{Code: CodeInvalidOperation, Message: fmt.Sprintf("operation %q is declared twice", op.Name)}
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		seen[op.Name] = true
		next[op.Name] = e.newOperation(op)
		next[op.Name].declared = declared
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	into.Store(&next)
	// Sweeps have so far ignored the records of operations that are new here.
	e.sweeps.Forget()
	return nil
}

func (e *Engine) newOperation(op Operation) *operation {
	op = op.withDefaults()
	return &operation{
		Operation: op, engine: e, leases: renewal.Leases[*Attempt]{Elapsed: e.elapsed, Period: op.Lease / 3, Renew: (*Attempt).renewOrStop}, asking: make(chan struct{}, maxReconciling),
		compensating: make(chan struct{}, maxCompensating),
	}
}

// Lookup returns the record of an identity. An expired one is not found.
func (e *Engine) Lookup(ctx context.Context, id ID) (Record, error) {
	rec, err := e.get(ctx, id)
	if err != nil {
		return Record{}, err
	}
	now, err := e.now(ctx)
	if err != nil {
		return Record{}, err
	}
	if rec.Expired(now) || rec.Mark != nil { // the mark of a sequence is no call
		return Record{}, ErrNotFound
	}
	return *asOf(rec, now), nil
}

// Close refuses further calls, and waits until the engine's work in the background has
// ended, or ctx is done. Running attempts go on and their leases are renewed until they
// end. The store stays open.
func (e *Engine) Close(ctx context.Context) error {
	e.stop()
	return e.background.Close(ctx)
}

// goBackground runs f until the engine closes. It reports false, and runs nothing, if the
// engine is closed already.
func (e *Engine) goBackground(f func(ctx context.Context)) bool {
	return e.background.Go(func() { f(e.done) })
}

// newRevision names a write by a random prefix of this engine and a counter.
func (e *Engine) newRevision() (r store.Revision) {
	copy(r[:8], e.revPrefix[:])
	binary.BigEndian.PutUint64(r[8:], e.revCount.Add(1))
	return r
}

// elapsed returns the engine's age by the process's monotonic clock. Holders judge their own
// leases by it, because reading it needs no store.
func (e *Engine) elapsed() time.Duration { return time.Since(e.start) }

// reading is one moment on two clocks. The engine's is read first, so that a holder never
// takes its lease for longer than it is.
type reading struct {
	elapsed time.Duration // holders judge their own leases by it
	now     store.Instant // stored records are judged by it
}

func (e *Engine) read(ctx context.Context) (at reading, err error) {
	at.elapsed = e.elapsed()
	at.now, err = e.now(ctx)
	return at, err
}

func (e *Engine) now(ctx context.Context) (store.Instant, error) {
	ctx, own := e.storeCall(ctx)
	defer own.End()
	now, err := e.store.Now(ctx)
	if err != nil {
		return 0, e.storeError(ctx, "now", ID{}, err)
	}
	return now, nil
}

// getIfAny reads a record within the time limit of a call. It returns none if there is none.
func (e *Engine) getIfAny(ctx context.Context, id ID) (*Record, error) {
	ctx, cancel := e.limited(ctx)
	defer cancel()
	rec, err := e.store.Get(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return &none, nil
	case err != nil:
		return &none, e.storeError(ctx, "get", id, err)
	}
	return rec, nil
}

// get is getIfAny, with [ErrNotFound] if there is none.
func (e *Engine) get(ctx context.Context, id ID) (*Record, error) {
	rec, err := e.getIfAny(ctx, id)
	if err == nil && rec == &none {
		err = ErrNotFound
	}
	return rec, err
}

// storeError reports a failed read, unless it only says that its caller has hung up, and turns its
// error into one that says that the store is unavailable. ctx is the call's.
func (e *Engine) storeError(ctx context.Context, call string, id ID, err error) error {
	if errors.Is(err, ErrNotFound) {
		return err
	}
	if e.events.StoreFailed != nil && !callctx.HungUp(ctx, err) {
		e.events.StoreFailed(StoreFailed{ID: id, Call: call, Err: err, Try: 1})
	}
	return &Error{Code: CodeStoreUnavailable, Err: err}
}
