package service

import (
	"context"

	"github.com/semelhq/semel/internal/service/metrics"
	"github.com/semelhq/semel/service/tracing"
)

// traces makes the spans of deliveries, if anybody wants them. Without that, a nil tracer
// observes nothing.
func (s *Server) traces(ctx context.Context, opts *Options) (*tracing.Tracer, error) {
	provider, c := opts.Traces, &opts.Config.Traces
	s.stopTraces = func(context.Context) error { return nil }
	if provider == nil {
		pushed, err := metrics.Traces(ctx, c.OTLP, c.Ratio, opts.Version)
		if err != nil || pushed == nil {
			return nil, err
		}
		provider, s.stopTraces = pushed, pushed.Shutdown
	}
	return tracing.New(provider), nil
}
