package server

import (
	"context"
	"log/slog"

	"github.com/semelhq/semel"
)

// observe logs what the engine tells: one line for each decision, at the level
// debug where it is the usual one, and louder what somebody should see. Keys,
// principals and payloads are not logged.
func observe(log *slog.Logger) *semel.Events {
	ctx := context.Background()
	return &semel.Events{
		Decided: func(e semel.DecidedEvent) {
			level := slog.LevelDebug
			if e.Decision == semel.Conflict || e.Decision == semel.Held || e.Decision == semel.Expired {
				level = slog.LevelInfo
			}
			if !log.Enabled(ctx, level) {
				return
			}
			log.LogAttrs(ctx, level, "decided", slog.String("record", e.ID.String()), slog.String("tenant", e.ID.Tenant),
				slog.String("decision", string(e.Decision)), slog.String("state", e.State.String()),
				slog.Int("attempt", e.Attempt), slog.Int64("fence", e.Fence), slog.Duration("waited", e.Waited))
		},
		Ended: func(e semel.EndedEvent) {
			level, disposition := slog.LevelDebug, e.Disposition.String()
			if e.Held != "" {
				level, disposition = slog.LevelWarn, "held"
			} else if e.By != "holder" {
				level = slog.LevelInfo
			}
			if !log.Enabled(ctx, level) {
				return
			}
			log.LogAttrs(ctx, level, "ended", slog.String("record", e.ID.String()), slog.String("tenant", e.ID.Tenant),
				slog.String("disposition", disposition), slog.Int("attempt", e.Attempt), slog.Int64("fence", e.Fence),
				slog.Duration("took", e.Took), slog.String("by", e.By), slog.String("reason", e.Reason), slog.String("held", e.Held))
		},
		LeaseLost: func(e semel.LeaseLostEvent) {
			log.LogAttrs(ctx, slog.LevelWarn, "lease lost", slog.String("record", e.ID.String()),
				slog.Int("attempt", e.Attempt), slog.Int64("fence", e.Fence), slog.Any("error", e.Err))
		},
		StoreFailed: func(e semel.StoreFailedEvent) {
			log.LogAttrs(ctx, slog.LevelError, "store failed", slog.String("call", e.Call), slog.Int("try", e.Try), slog.Any("error", e.Err))
		},
		Purged: func(e semel.PurgedEvent) {
			if e.By == "" {
				log.LogAttrs(ctx, slog.LevelDebug, "purged", slog.Int("count", e.Count))
				return
			}
			log.LogAttrs(ctx, slog.LevelInfo, "purged", slog.String("record", e.ID.String()), slog.String("by", e.By), slog.String("reason", e.Reason))
		},
		SweepFailed: func(err error) {
			log.LogAttrs(ctx, slog.LevelError, "sweep failed", slog.Any("error", err))
		},
	}
}

// both calls the functions of a and then those of b.
func both(a, b *semel.Events) *semel.Events {
	return &semel.Events{
		Decided:     after(a.Decided, b.Decided),
		Ended:       after(a.Ended, b.Ended),
		LeaseLost:   after(a.LeaseLost, b.LeaseLost),
		StoreFailed: after(a.StoreFailed, b.StoreFailed),
		Purged:      after(a.Purged, b.Purged),
		SweepFailed: after(a.SweepFailed, b.SweepFailed),
	}
}

func after[E any](a, b func(E)) func(E) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(e E) {
		a(e)
		b(e)
	}
}
