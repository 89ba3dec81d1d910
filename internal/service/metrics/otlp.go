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
	exporter, res, err := collector(ctx, "metrics", url, version, otlpmetrichttp.WithEndpointURL, otlpmetrichttp.New)
	if err != nil {
		return nil, err
	}
	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(m.registry))))
	return metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(res)).Shutdown, nil
}

// configured reports whether there is a collector; endpoint is the variable with its address.
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
	exporter, res, err := collector(ctx, "traces", url, version, otlptracehttp.WithEndpointURL, otlptracehttp.New)
	if err != nil {
		return nil, err
	}
	return trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(res), trace.WithSampler(Sampler(ratio))), nil
}

// Sampler is how the service samples.
func Sampler(ratio float64) trace.Sampler { return trace.ParentBased(trace.TraceIDRatioBased(ratio)) }

// collector connects one signal to where it goes, and names this process to it: by
// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES first.
func collector[E, O any](ctx context.Context, signal, url, version string, at func(string) O, open func(context.Context, ...O) (E, error)) (to E, res *resource.Resource, err error) {
	var opts []O
	if url != "" {
		opts = append(opts, at(url))
	}
	if to, err = open(ctx, opts...); err != nil {
		return to, nil, fmt.Errorf("%s: %w", signal, err)
	}
	res, err = resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "semel"), attribute.String("service.version", version)), resource.WithFromEnv(), resource.WithHost(), resource.WithProcessPID())
	if err != nil {
		return to, nil, fmt.Errorf("metrics: the resource: %w", err)
	}
	return to, res, nil
}
