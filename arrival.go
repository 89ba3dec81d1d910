package semel

import (
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/semelhq/semel/store"
)

// Arrived begins a delivery that a door has taken in, with the headers of its request, if it
// has any, and returns the context under which it goes on. Give that to the engine and to
// Answered. If nobody observes deliveries it is ctx.
func (in Internal) Arrived(ctx context.Context, name string, header map[string][]string) context.Context {
	if !in.Listens() && in.engine.events.Arrived == nil {
		return ctx
	}
	ctx = &arrival{ctx, name, header, time.Now()}
	if arrived := in.engine.events.Arrived; arrived != nil {
		ctx = arrived(ctx, Event{Door: name, Header: header})
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

// Value finds the arrival itself, and otherwise what the context around it has.
func (a *arrival) Value(key any) any {
	if _, ok := key.(arrivalKey); ok {
		return a
	}
	return a.Context.Value(key)
}

// Answered passes an event to [Events].Answered, if that is set, after it has filled in what
// is known from Arrived, whose context this is: Context, Door, Header, Trace and Took.
func (in Internal) Answered(ctx context.Context, e Event) {
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

// Trace is the W3C trace context (traceparent) that a request to an upstream carries on
// behalf of a delivery, by the context of its handler. It is empty if nothing is traced, and
// the request then has that of its caller.
func (in Internal) Trace(ctx context.Context) string { return in.engine.trace(ctx) }

func (e *Engine) trace(ctx context.Context) string {
	if f := e.events.Trace; f != nil {
		return f(ctx)
	}
	return ""
}

// traced are the attributes of an attempt that begins under a trace context.
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
