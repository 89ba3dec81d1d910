package semel

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/engine/ratelimit"
	"github.com/semelhq/semel/store"
)

// Internal is the part of an engine for packages that stand between it and your program: doors
// that translate a protocol, dispatchers of messages, the service and its commands. A program
// that only runs calls needs none of it.
//
// It may be copied and used concurrently, as its engine may.
type Internal struct{ engine *Engine }

// Internal returns what doors, dispatchers and services need beyond running calls.
func (e *Engine) Internal() Internal { return Internal{e} }

// Store returns the engine's store.
func (in Internal) Store() Store { return in.engine.store }

// Node returns the name that the engine has in the records it holds: [Options].Node.
func (in Internal) Node() string { return in.engine.node }

// Listens reports whether anybody observes answers: [Events].Answered is set. If not, a door
// needn't gather an event's details.
func (in Internal) Listens() bool { return in.engine.events.Answered != nil }

// Troubled passes an event to [Events].Troubled. It reports false if that isn't set.
func (in Internal) Troubled(e Troubled) bool {
	tell := in.engine.events.Troubled
	if tell != nil {
		tell(e)
	}
	return tell != nil
}

// Background runs f beside calls. [Engine.Close] ends its context, and waits for it. It reports
// false, and runs nothing, once the engine is closed.
func (in Internal) Background(f func(ctx context.Context)) bool { return in.engine.goBackground(f) }

// Operation returns a registered operation with its defaults filled in. While Redeclare is at
// work, that is the one it is about to register, so that doors find what they declare.
func (in Internal) Operation(name string) (Operation, bool) {
	ops := in.engine.declaring.Load()
	if ops == nil {
		ops = in.engine.ops.Load()
	}
	op, ok := (*ops)[name]
	if !ok {
		return Operation{}, false
	}
	return op.Operation, true
}

// Operations returns the registered operations by name, with their defaults
// filled in.
func (in Internal) Operations() []Operation {
	ops := *in.engine.ops.Load()
	list := make([]Operation, 0, len(ops))
	for _, name := range slices.Sorted(maps.Keys(ops)) {
		list = append(list, ops[name].Operation)
	}
	return list
}

// Redeclare replaces the operations that an earlier Redeclare registered, all or nothing.
// declare registers the operations, itself or through others. No call is judged by them before
// it has succeeded: a record would keep the policy of a declaration that is then refused.
// commit removes the operations that only the earlier call registered: the engine then treats
// their calls and records as if it had never had them. Running attempts go on. Operations
// registered outside of Redeclare stay. Call it once at a time, and register nothing else
// meanwhile.
func (in Internal) Redeclare(declare func() error) (commit func(), err error) {
	e := in.engine
	e.register.Lock()
	e.declarations++
	this := e.declarations
	e.declaring.Store(e.ops.Load())
	e.register.Unlock()
	err = declare()
	e.register.Lock()
	defer e.register.Unlock()
	next := e.declaring.Load()
	defer e.declaring.Store(nil)
	if err != nil {
		return nil, err
	}
	e.ops.Store(next)
	e.sweeps.Forget()
	return func() {
		e.register.Lock()
		defer e.register.Unlock()
		next := maps.Clone(*e.ops.Load())
		maps.DeleteFunc(next, func(_ string, op *operation) bool { return op.declared != 0 && op.declared != this })
		e.ops.Store(&next)
	}, nil
}

// Arrived begins a delivery at a door, with the headers of its request, if any, and returns
// the context for the rest of it. Pass that to the engine and to Answered. If nobody observes
// deliveries it is ctx.
func (in Internal) Arrived(ctx context.Context, name string, header map[string][]string) context.Context {
	if !in.Listens() && in.engine.events.Arrived == nil {
		return ctx
	}
	ctx = &arrival{ctx, name, header, time.Now()}
	if arrived := in.engine.events.Arrived; arrived != nil {
		ctx = arrived(ctx, Arrived{Door: name, Header: header})
	}
	return ctx
}

// arrival is the context of a delivery that somebody observes.
type arrival struct {
	context.Context
	door   string
	header map[string][]string
	came   time.Time
}

type arrivalKey struct{}

// Value returns the arrival itself for its key, and the parent's value for any other.
func (a *arrival) Value(key any) any {
	if _, ok := key.(arrivalKey); ok {
		return a
	}
	return a.Context.Value(key)
}

// Answered passes an event to [Events].Answered, if that is set. It fills in Context, Door,
// Header, Trace and Took first. ctx is the context that Arrived returned.
func (in Internal) Answered(ctx context.Context, e Delivered) {
	tell := in.engine.events.Answered
	if tell == nil {
		return
	}
	e.Context, e.Trace = ctx, in.Trace(ctx)
	if a, ok := ctx.Value(arrivalKey{}).(*arrival); ok {
		e.Door, e.Header, e.Took = a.door, a.header, time.Since(a.came)
	}
	tell(e)
}

// Trace returns the W3C trace context (traceparent) for a request to an upstream on behalf of a
// delivery, given its handler's context. It is empty if nothing is traced, and the request then
// has that of its caller.
func (in Internal) Trace(ctx context.Context) string { return in.engine.trace(ctx) }

func (e *Engine) trace(ctx context.Context) string {
	if f := e.events.Trace; f != nil {
		return f(ctx)
	}
	return ""
}

// traced returns the attributes of an attempt that begins under a trace context.
func traced(attributes store.Attributes, trace string) store.Attributes {
	if isSampled(trace) {
		return attributes.With(store.Attributes{store.AttributeTrace: trace})
	}
	if _, there := attributes[store.AttributeTrace]; there { // of an earlier attempt
		attributes = maps.Clone(attributes)
		delete(attributes, store.AttributeTrace)
	}
	return attributes
}

// isSampled reports whether somebody keeps the trace, by the last bit of a traceparent.
func isSampled(trace string) bool {
	if len(trace) < 2 {
		return false
	}
	flags, err := strconv.ParseUint(trace[len(trace)-2:], 16, 8)
	return err == nil && flags&1 != 0
}

// Charge counts bytes that a door keeps beside a record against the quotas of whoever sent the
// call. It reports false, and counts nothing, if they are over a quota: keep nothing then.
func (in Internal) Charge(ctx context.Context, rec *Record, bytes int64) bool {
	charge := in.engine.quotas.charger(ctx, &Call{Principal: rec.Principal, BoundTo: rec.BoundTo}, rec.ID)
	now, err := in.engine.now(ctx)
	return charge == nil || err == nil && charge(bytes, now)
}

// Afford charges whoever sends a call for bytes that a door keeps beside it before the engine has
// it. It returns the error of a [Throttled] call, and charges nothing, if they may begin no new call by
// their quotas: keep nothing then.
func (in Internal) Afford(ctx context.Context, call *Call, share Share, bytes int64) error {
	q := &in.engine.quotas
	if !q.some {
		return nil
	}
	now, err := in.engine.now(ctx)
	if err != nil {
		return err
	}
	claim := &Record{ID: call.ID(share), Principal: call.Principal, BoundTo: call.BoundTo, UpdatedAt: now}
	if delay, by := q.wait(ctx, claim); delay > 0 {
		return &Error{Code: CodeThrottled, Message: by.message(), RetryAfter: delay}
	}
	q.charge(ctx, claim, ratelimit.Usage{Bytes: bytes + ratelimit.Overhead})
	return nil
}

// Seat takes a seat among those who wait for an outcome, for a caller who follows one that comes
// bit by bit. Without one (see Options.MaxWaiters) leave is nil.
func (in Internal) Seat(tenant string) (leave func()) {
	if !in.engine.waiters.Admit(tenant) {
		return nil
	}
	return func() { in.engine.waiters.Dismiss(tenant) }
}

// Peek returns what a delivery of a call would get now: it never executes, never waits
// and changes no record. [Execute] means that the call would run; the answer then has
// no attempt, and may be out of date when you begin the call. The error is the same as
// that of [Engine.Begin].
//
// An answer without an execution (a replay, a conflict) is reported and limited as if the
// call had been delivered. Peek is for doors that already know that a delivery may not
// execute, such as one with the key of another call.
func (in Internal) Peek(ctx context.Context, call Call) (Answer, error) {
	e := in.engine
	d := delivery{engine: e, call: call}
	err := d.admit(ctx)
	if err != nil {
		return Answer{}, err
	}
	if d.at, err = e.read(ctx); err != nil {
		return Answer{}, err
	}
	would := Answer{Decision: Execute, Record: &Record{ID: d.id}}
	if d.op.Class == ReadOnly {
		return would, nil
	}
	if err := d.look(ctx); err != nil {
		return Answer{}, err
	}
	if d.cur.RefusedUntil > d.at.now {
		if err := d.ownRefusal(ctx); err != nil {
			return Answer{}, err
		}
	}
	r := ruling{decision: Execute}
	if d.cur.State != absent {
		r = d.rule()
	}
	if d.op.Sequenced && r.decision == Execute {
		next, decision, err := d.ruleNumber(ctx)
		switch {
		case err != nil:
			return Answer{}, err
		case next == startOver:
			r = d.rule()
		case next == answered:
			return d.ans, d.answer(ctx)
		case decision != Execute:
			d.refuseNumber(decision)
			err = d.answer(ctx)
			return d.ans, err
		}
	}
	if d.cur.State == absent {
		return would, nil
	}
	d.foreign = isForeign(&d.call, d.cur)
	d.ans.Decision, d.ans.Record = r.decision, d.cur
	if r.hold != "" { // the next delivery will write it
		if d.ans.Record, err = d.held(r.hold); err != nil {
			return Answer{}, err
		}
	}
	if r.decision != Execute {
		err = d.answer(ctx)
	}
	return d.ans, err
}

// Search lists records, for people. It lists the internal records of the engine and its doors,
// see [store.ID.Internal], only if q names their operation or, for activities, their principal.
// So a page may be shorter than asked for although there is a next one. The key of a sequence
// selects its numbers. [CodeUnsupported] means that the store can't.
func (e *Engine) Search(ctx context.Context, q store.Query) (store.Page, error) {
	ss := e.extras.Search
	if ss == nil {
		return store.Page{}, &Error{Code: CodeUnsupported, Message: "the store can't list its records"}
	}
	if q.Limit < 0 || q.Limit > store.MaxSearchLimit {
		return store.Page{}, &Error{Code: CodeInvalidCall, Message: "the limit of a page is 1 to 1000"}
	}
	if q.Limit == 0 {
		q.Limit = store.DefaultSearchLimit
	}
	q, numbers := withNumbers(q)
	call, cancel := e.limited(ctx)
	defer cancel()
	page, err := ss.Search(call, q)
	if numbers && page.Next != "" {
		page.Next = inNumbers + page.Next
	}
	switch {
	case errors.Is(err, &Error{Code: CodeInvalidCall}):
		return store.Page{}, err
	case err != nil:
		return store.Page{}, e.storeError(ctx, "search", ID{}, err)
	}
	mark := slices.ContainsFunc(page.Records, func(rec Record) bool { return rec.Mark != nil })
	page.Records = slices.DeleteFunc(page.Records, func(rec Record) bool {
		return rec.Mark != nil || rec.ID.Internal() && !strings.HasPrefix(q.Operation, reservedPrefix) && (q.Principal == "" || q.Principal != rec.ID.Principal)
	})
	if mark && q.Key != "" && page.Next == "" {
		page.Next = inNumbers // of the sequence that the key names
	}
	return page, nil
}

// inNumbers begins the cursor of a search for the numbers of a sequence by its key.
const inNumbers = "numbers:"

// withNumbers returns a query that continues with the numbers of the sequence that its key
// names, or q.
func withNumbers(q store.Query) (_ store.Query, numbers bool) {
	rest, numbers := strings.CutPrefix(q.Cursor, inNumbers)
	if numbers && q.Key != "" {
		q.Key, q.KeyPrefix, q.Cursor = "", q.Key+store.ScopeMark, rest
		return q, true
	}
	return q, false
}
