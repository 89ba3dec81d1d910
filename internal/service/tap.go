package service

import (
	"context"
	"log/slog"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/service/config"
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

// observeDoors logs what doors tell: a line about each delivery, unless the configuration
// wants none, and errors that no caller gets.
func observeDoors(log *slog.Logger, c *config.Log) *semel.Events {
	if c.Deliveries == config.DeliveriesOff {
		return &semel.Events{Troubled: door.Troubles(log)}
	}
	return door.Log(log, outcomeLevel(c))
}

// outcomeLevel is the level of the line about a delivery that got its outcome.
func outcomeLevel(c *config.Log) slog.Level {
	if c.Deliveries == config.DeliveriesDebug {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
