package metrics

import (
	"context"
	"fmt"
	"os"

	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

// Push pushes all metrics by OTLP over HTTP until you call stop, which pushes what is left.
// The standard variables of OpenTelemetry say how often and with which headers; an empty url
// leaves it to them where to, and if they don't say so, nothing is pushed. An error is one of
// the configuration: a collector that is away is nobody's error, and gets the sums later.
func (m *Metrics) Push(ctx context.Context, url, version string) (stop func(context.Context) error, err error) {
	if url == "" && os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") == "" {
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

// describe names this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go first.
func describe(ctx context.Context, version string) (*resource.Resource, error) {
	res, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "semel"), attribute.String("service.version", version)), resource.WithFromEnv(), resource.WithHost(), resource.WithProcessPID())
	if err != nil {
		return nil, fmt.Errorf("metrics: the resource: %w", err)
	}
	return res, nil
}
