package tracing_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/service/tracing"
	"github.com/semelhq/semel/store/memstore"
)

func ExampleTracer() {
	exporter := tracetest.NewInMemoryExporter() // in your program, otlptracehttp or another
	// snippet: Tracer
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	engine, err := semel.New(memstore.New(), &semel.Options{Events: tracing.New(provider).Events()})
	// end snippet
	if err != nil {
		slog.Error("semel", slog.Any("error", err))
		return
	}
	defer engine.Close(context.Background())
	guard, _ := semelhttp.New(engine, nil)
	pay := guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "pay"}, Anonymous: semelhttp.AnonymousShare},
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	for range 2 {
		r := httptest.NewRequest("POST", "/pay", strings.NewReader(`{"amount":1250}`))
		r.Header.Set("Idempotency-Key", "order-7")
		pay.ServeHTTP(httptest.NewRecorder(), r)
	}
	spans := exporter.GetSpans()
	for _, span := range spans {
		fmt.Println(span.Name, "has", len(span.Links), "links")
	}
	fmt.Println("the link leads to the execution:", spans[1].Links[0].SpanContext.Equal(spans[0].SpanContext.WithRemote(true)))
	// Output:
	// http pay has 0 links
	// http pay has 1 links
	// the link leads to the execution: true
}
