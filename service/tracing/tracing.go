// Package tracing makes OpenTelemetry spans of what an engine and its doors tell by
// [semel.Events]. Neither of them depends on OpenTelemetry: give the engine the Events of a
// [Tracer], in your own program as the service does.
//
// Each delivery at a door is one span. Its parent is the span in the context of the request,
// such as one of otelhttp, or else what the request says by the W3C headers traceparent and
// tracestate. Under it run your handler, and the request to an upstream, which carries the
// trace context on. The record of a call keeps that of its newest attempt, if it is sampled; a
// replay, and any other delivery that met the record, has a link to it, on whichever node and
// after whatever restart. Each try to deliver a message of the outbox is a span of the trace
// that has sent it.
package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door"
)

// The attributes that spans of deliveries and of tries both have. Keys, principals and payloads
// are in none of them: semel.record has a digest of the identity, as the log has.
const (
	attrDoor      = "semel.door"
	attrOperation = "semel.operation"
	attrRecord    = "semel.record"
	attrTenant    = "semel.tenant"
)

// consumers are doors that answer before the work itself.
var consumers = map[string]bool{"webhook": true, "activitypub": true, "whatsapp": true}

var w3c propagation.TraceContext

// Tracer makes the spans. Make one with [New]. It may be used concurrently.
type Tracer struct{ tracer trace.Tracer }

// New makes a tracer that gives its spans to a provider. The provider decides which to sample:
// with the SDK's ParentBased sampler, the ones that the caller has sampled.
func New(provider trace.TracerProvider) *Tracer {
	return &Tracer{provider.Tracer("github.com/semelhq/semel/service/tracing")}
}

// Events are for the engine's options, alone or together with others. A nil tracer's observe
// nothing, and cost nothing.
func (t *Tracer) Events() *semel.Events {
	if t == nil {
		return &semel.Events{}
	}
	return &semel.Events{Arrived: t.arrived, Trace: traceparent, Answered: answered}
}

// deliveryKey is the key of the span in the context of a delivery: the span of that context
// may be somebody else's if the delivery isn't traced.
type deliveryKey struct{}

func (t *Tracer) arrived(ctx context.Context, e semel.Arrived) context.Context {
	kind := trace.SpanKindServer
	switch parent := trace.SpanContextFromContext(ctx); {
	case consumers[e.Door]:
		kind = trace.SpanKindConsumer
	case parent.IsValid() && !parent.IsRemote():
		kind = trace.SpanKindInternal // the server's own span is around it
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = w3c.Extract(ctx, propagation.HeaderCarrier(e.Header))
	}
	ctx, span := t.tracer.Start(ctx, e.Door, trace.WithSpanKind(kind), trace.WithAttributes(attribute.String(attrDoor, e.Door)))
	return context.WithValue(ctx, deliveryKey{}, span)
}

func answered(e semel.Delivered) {
	span, ok := e.Context.Value(deliveryKey{}).(trace.Span)
	if !ok {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	if e.ID.Operation != "" {
		span.SetName(e.Door + " " + e.ID.Operation)
	}
	set(span, attrOperation, e.ID.Operation)
	set(span, "semel.decision", string(e.Decision))
	set(span, attrTenant, e.ID.Tenant)
	set(span, "semel.code", string(e.Code))
	if e.ID.Key != "" {
		set(span, attrRecord, e.ID.String())
	}
	if e.Attempt != 0 {
		span.SetAttributes(attribute.Int("semel.attempt", e.Attempt))
	}
	if e.Status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", e.Status))
	}
	if m, known := door.Lookup(e.Code); e.Code != "" && known && m.Status >= http.StatusInternalServerError || e.Status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, string(e.Code))
	}
	if executed := parse(e.Executed); executed.IsValid() && executed.SpanID() != span.SpanContext().SpanID() {
		span.AddLink(trace.Link{SpanContext: executed, Attributes: []attribute.KeyValue{attribute.String("semel.link", "executed")}})
	}
}

func set(span trace.Span, name, value string) {
	if value != "" {
		span.SetAttributes(attribute.String(name, value))
	}
}

// traceparent is the trace context of the span in ctx; empty if there is none.
func traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// parse reads a traceparent. What isn't one is no valid context.
func parse(text string) trace.SpanContext {
	ctx := w3c.Extract(context.Background(), propagation.MapCarrier{"traceparent": text})
	return trace.SpanContextFromContext(ctx)
}

// Dispatched are for a dispatcher's options; more are called as well. Give [dispatch.HTTP]
// the Trace of the engine's [semel.Internal], so that receivers get the trace context.
func (t *Tracer) Dispatched(more *dispatch.Events) *dispatch.Events {
	if t == nil {
		return more
	}
	all := *more
	all.Sending = t.sending
	all.Delivered = ending("delivered", more.Delivered)
	all.Failed = ending("failed", more.Failed)
	all.Parked = ending("parked", more.Parked)
	return &all
}

// sending begins the span of a try, if the call that has sent the message has a trace.
func (t *Tracer) sending(ctx context.Context, e dispatch.DeliveryEvent) context.Context {
	executed := parse(e.Executed)
	if !executed.IsValid() {
		return ctx
	}
	ctx, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, executed), "dispatch "+e.Destination, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String(attrDoor, "dispatch"), attribute.String("semel.destination", e.Destination), attribute.String("semel.message", e.MessageID),
		attribute.String(attrOperation, e.Call.Operation), attribute.String(attrRecord, e.Call.String()), attribute.String(attrTenant, e.Tenant), attribute.Int("semel.try", e.Try)))
	return context.WithValue(ctx, deliveryKey{}, span)
}

func ending(outcome string, more func(dispatch.DeliveryEvent)) func(dispatch.DeliveryEvent) {
	return func(e dispatch.DeliveryEvent) {
		if e.Context != nil {
			if span, ok := e.Context.Value(deliveryKey{}).(trace.Span); ok {
				set(span, "semel.outcome", outcome)
				if e.Err != nil {
					span.SetStatus(codes.Error, "") // the error has names of this network
				}
				span.End()
			}
		}
		if more != nil {
			more(e)
		}
	}
}
