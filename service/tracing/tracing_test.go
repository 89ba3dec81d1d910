package tracing_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/service/metrics"
	"github.com/semelhq/semel/service/tracing"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

const (
	caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	other  = "00-11f92f3577b34da6a3ce929d0e0e4711-00f067aa0ba902b7-01"
)

// world is a guarded handler in a program with its own provider of traces.
type world struct {
	engine   *semel.Engine
	provider *sdk.TracerProvider
	spans    *tracetest.InMemoryExporter
	handler  http.Handler
	seen     chan trace.SpanContext // by the handler
	goOn     chan struct{}          // lets the handler answer; nil: at once
}

func newWorld(t *testing.T, ratio float64) *world {
	t.Helper()
	w := &world{spans: tracetest.NewInMemoryExporter(), seen: make(chan trace.SpanContext, 10)}
	w.provider = sdk.NewTracerProvider(sdk.WithSyncer(w.spans), sdk.WithSampler(metrics.Sampler(ratio)))
	var err error
	if w.engine, err = semel.New(memstore.New(), &semel.Options{Events: tracing.New(w.provider).Events()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.engine.Close(context.WithoutCancel(t.Context())) })
	guard, err := semelhttp.New(w.engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.handler = guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "pay"}, Anonymous: semelhttp.AnonymousShare}, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.seen <- trace.SpanContextFromContext(r.Context())
		if w.goOn != nil {
			<-w.goOn
		}
		rw.WriteHeader(201)
	}))
	return w
}

func (w *world) post(key, traceparent string, ctx context.Context) int {
	r := httptest.NewRequestWithContext(ctx, "POST", "/pay", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", key)
	if traceparent != "" {
		r.Header.Set("Traceparent", traceparent)
	}
	if ctx.Value(waits{}) != nil {
		r.Header.Set("Prefer", "wait=30")
	}
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, r)
	return rec.Code
}

type waits struct{}

// A delivery is a span of its caller's trace, in which the handler runs. Where the program's own
// server has begun one, it is within that.
func TestADeliveryIsASpanOfItsCallersTrace(t *testing.T) {
	w := newWorld(t, 1)
	w.post("k", caller, t.Context())
	ctx, server := w.provider.Tracer("otelhttp").Start(t.Context(), "POST /pay")
	w.post("k", caller, ctx)
	server.End()
	spans := w.spans.GetSpans()
	if len(spans) != 3 {
		t.Fatalf("%d spans", len(spans))
	}
	first, second := spans[0], spans[1]
	if first.SpanContext.TraceID().String() != caller[3:35] || first.Parent.SpanID().String() != caller[36:52] || first.SpanKind != trace.SpanKindServer || first.Name != "http pay" {
		t.Errorf("the first is %+v", first)
	}
	if ran := <-w.seen; !ran.Equal(first.SpanContext) {
		t.Errorf("the handler ran in %v", ran)
	}
	if second.Parent.SpanID() != server.SpanContext().SpanID() || second.SpanKind != trace.SpanKindInternal || len(second.Links) != 1 || second.Links[0].SpanContext.SpanID() != first.SpanContext.SpanID() {
		t.Errorf("the second is %+v", second)
	}
	page, err := w.engine.Search(t.Context(), store.Query{AttributePrefixes: store.Attributes{store.AttributeTrace: "00-" + caller[3:35]}})
	if err != nil || len(page.Records) != 1 || page.Records[0].Attributes[store.AttributeTrace] != "00-"+caller[3:35]+"-"+first.SpanContext.SpanID().String()+"-01" {
		t.Errorf("by its trace: %+v, %v", page.Records, err)
	}
}

// A delivery that joins a running attempt links to it, whether it waits for the outcome or not.
func TestAJoinLinksToTheExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.goOn = make(chan struct{})
		var work sync.WaitGroup
		work.Go(func() { w.post("k", caller, t.Context()) })
		execution := <-w.seen
		if status := w.post("k", other, t.Context()); status != http.StatusConflict {
			t.Error(status)
		}
		work.Go(func() { w.post("k", other, context.WithValue(t.Context(), waits{}, true)) })
		synctest.Wait()
		close(w.goOn)
		work.Wait()
		joined := 0
		for _, span := range w.spans.GetSpans() {
			if span.SpanContext.SpanID() == execution.SpanID() {
				continue
			}
			joined++
			if len(span.Links) != 1 || span.Links[0].SpanContext.SpanID() != execution.SpanID() {
				t.Errorf("%v has the links %v", span.Attributes, span.Links)
			}
		}
		if joined != 2 {
			t.Errorf("%d deliveries joined", joined)
		}
	})
}

// The caller's sampled flag decides, and where there is none the ratio. A record keeps no trace
// that nobody keeps, and a retry replaces that of the attempt before it.
func TestSampling(t *testing.T) {
	w := newWorld(t, 0)
	kept := func(key string) string {
		page, err := w.engine.Search(t.Context(), store.Query{Key: key})
		if err != nil || len(page.Records) != 1 {
			t.Fatalf("%s: %+v, %v", key, page, err)
		}
		return page.Records[0].Attributes[store.AttributeTrace]
	}
	w.post("none", "", t.Context())
	w.post("unsampled", strings.TrimSuffix(caller, "1")+"0", t.Context())
	if spans := w.spans.GetSpans(); len(spans) != 0 || kept("none") != "" || kept("unsampled") != "" {
		t.Errorf("%d spans; the records keep %q and %q", len(spans), kept("none"), kept("unsampled"))
	}
	<-w.seen
	if ran := <-w.seen; ran.TraceID().String() != caller[3:35] || ran.IsSampled() {
		t.Errorf("the handler ran in %v: the caller's trace doesn't go on", ran)
	}
	w.post("sampled", caller, t.Context())
	if len(w.spans.GetSpans()) != 1 || !strings.Contains(kept("sampled"), caller[3:35]) {
		t.Errorf("%d spans; the record keeps %q", len(w.spans.GetSpans()), kept("sampled"))
	}
	if err := w.engine.Register(semel.Operation{Name: "again", OnFailure: semel.RetryFailure}); err != nil {
		t.Fatal(err)
	}
	tap := w.engine.Internal()
	for _, c := range []struct{ header, want string }{{caller, caller[3:35]}, {other, other[3:35]}, {"", ""}} {
		ctx := tap.Arrived(t.Context(), "http", http.Header{"Traceparent": {c.header}})
		ans, err := w.engine.Begin(ctx, semel.Call{Operation: "again", Key: "again"})
		if err == nil {
			err = ans.Attempt.Fail(ctx, store.Failure{}, semel.Result{})
		}
		if got := kept("again"); err != nil || !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("after an attempt in %q the record keeps %q, %v", c.header, got, err)
		}
	}
}

// Each try to deliver a message is a span of the trace that has sent it, and hands it on.
func TestMessagesGoOnInTheirTrace(t *testing.T) {
	w := newWorld(t, 1)
	got := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Traceparent") }))
	defer receiver.Close()
	sender, err := dispatch.HTTP(dispatch.HTTPOptions{URL: receiver.URL, AllowPrivate: true, Trace: w.engine.Internal().Trace})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	events := tracing.New(w.provider).Dispatched(&dispatch.Events{Delivered: func(dispatch.DeliveryEvent) { close(done) }})
	d, err := dispatch.New(w.engine, dispatch.Options{Destinations: map[string]dispatch.Destination{"billing": {Sender: sender}}, Events: events})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go d.Run(ctx)
	if err := w.engine.Register(semel.Operation{Name: "op"}); err != nil {
		t.Fatal(err)
	}
	arrived := w.engine.Internal().Arrived(ctx, "http", http.Header{"Traceparent": {caller}})
	if _, err := w.engine.Do(arrived, semel.Call{Operation: "op", Key: "k"}, func(_ context.Context, x semel.Execution) (semel.Result, error) {
		return semel.Result{}, semel.Send(x, semel.Message{Name: "m", Destination: "billing", Payload: []byte("{}")})
	}); err != nil {
		t.Fatal(err)
	}
	header := <-got
	<-done
	spans := w.spans.GetSpans()
	i := slices.IndexFunc(spans, func(s tracetest.SpanStub) bool { return s.Name == "dispatch billing" })
	if i < 0 || spans[i].Parent.SpanID() != trace.SpanContextFromContext(arrived).SpanID() || spans[i].SpanKind != trace.SpanKindProducer {
		t.Fatalf("the spans are %+v", spans)
	}
	if want := "00-" + caller[3:35] + "-" + spans[i].SpanContext.SpanID().String() + "-01"; header != want {
		t.Errorf("the receiver got %q, want %q", header, want)
	}
}

// Without a collector there is no tracer, and a delivery allocates what it does without Events.
func TestNoTracerCostsNothing(t *testing.T) {
	allocations := func(events *semel.Events) float64 {
		e, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{{Name: "op"}}, Events: events})
		if err != nil {
			t.Fatal(err)
		}
		ctx, tap := t.Context(), e.Internal()
		header := http.Header{"Traceparent": {caller}}
		call := semel.Call{Operation: "op", Key: "k"}
		ans, err := e.Begin(ctx, call)
		if err != nil || ans.Attempt.Complete(ctx, semel.Result{}) != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(1000, func() {
			ctx := tap.Arrived(ctx, "http", header)
			ans, err := e.Begin(ctx, call)
			if err != nil || ans.Decision != semel.Replay {
				t.Fatal(err)
			}
			tap.Answered(ctx, semel.Delivered{})
		})
	}
	var none *tracing.Tracer
	if with, without := allocations(none.Events()), allocations(nil); with != without {
		t.Errorf("%v allocations, want %v", with, without)
	}
}
