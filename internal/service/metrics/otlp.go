package metrics

import (
	"context"
	"fmt"
	"os"

	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// Push pushes all metrics by OTLP over HTTP until you call stop, which pushes the rest. The
// standard variables of OpenTelemetry say how often and with which headers; an empty url leaves
// it to them where to, and if they don't say so, nothing is pushed. An error is one of the
// configuration: a collector that is away is nobody's error, and gets the sums later.
func (m *Metrics) Push(ctx context.Context, url, version string) (stop func(context.Context) error, err error) {
	if !configured(url, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") {
		return func(context.Context) error { return nil }, nil
	}
	var opts []otlpmetrichttp.Option
	if url != "" {
		opts = append(opts, otlpmetrichttp.WithEndpointURL(url))
	}
	exporter, err := otlpmetrichttp.New(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	res, err := describe(ctx, version)
	if err != nil {
		return nil, err
	}
	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(m.registry))))
	return metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(res)).Shutdown, nil
}

// configured reports whether there is a collector for a signal. endpoint is the variable with
// its address.
func configured(url, endpoint string) bool {
	return url != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv(endpoint) != ""
}

// Traces makes a provider that pushes spans as [Metrics.Push] does metrics, in batches in the
// background: a collector that is away, or slow, loses spans and delays nothing. It samples
// what the caller has sampled, and of the traces that begin here a share of ratio. Shut it down
// to push the rest. It is nil if there is no collector.
func Traces(ctx context.Context, url string, ratio float64, version string) (*trace.TracerProvider, error) {
	if !configured(url, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
		return nil, nil
	}
	var opts []otlptracehttp.Option
	if url != "" {
		opts = append(opts, otlptracehttp.WithEndpointURL(url))
	}
	exporter, err := otlptracehttp.New(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	res, err := describe(ctx, version)
	if err != nil {
		return nil, err
	}
	return trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(res), trace.WithSampler(Sampler(ratio))), nil
}

// Sampler is how the service samples.
func Sampler(ratio float64) trace.Sampler { return trace.ParentBased(trace.TraceIDRatioBased(ratio)) }

// describe names this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go first.
func describe(ctx context.Context, version string) (*resource.Resource, error) {
	res, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "semel"), attribute.String("service.version", version)), resource.WithFromEnv(), resource.WithHost(), resource.WithProcessPID())
	if err != nil {
		return nil, fmt.Errorf("metrics: the resource: %w", err)
	}
	return res, nil
}
