package service

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/seldom"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/store"
)

// observe logs the engine's events, but for deliveries: those have the line that the door
// package writes. Usual ends of attempts are at the level debug, and what somebody should see
// is higher. It doesn't log keys, principals or payloads.
func observe(log *slog.Logger) *semel.Events {
	ctx := context.Background()
	failed := func(what string, id semel.ID, took time.Duration, err error) {
		if err != nil {
			log.LogAttrs(ctx, slog.LevelWarn, what, slog.String("record", id.String()), slog.Duration("took", took), slog.Any("error", err))
		}
	}
	return &semel.Events{
		Ended: func(e semel.Ended) {
			level, disposition := slog.LevelDebug, e.Disposition.String()
			if e.Held {
				level, disposition = slog.LevelWarn, "held"
			} else if e.By != "holder" {
				level = slog.LevelInfo
			}
			if !log.Enabled(ctx, level) {
				return
			}
			log.LogAttrs(ctx, level, "ended", slog.String("record", e.ID.String()), slog.String("tenant", e.ID.Tenant),
				decided(&e), slog.String("disposition", disposition), slog.Int("attempt", e.Attempt), slog.Int64("fence", e.Fence),
				slog.Duration("took", e.Took), slog.String("by", e.By), slog.String("who", e.Who), slog.String("reason", e.Reason), slog.String("held_reason", e.HeldReason))
		},
		LeaseLost: func(e semel.LeaseLost) {
			log.LogAttrs(ctx, slog.LevelWarn, "lease lost", slog.String("record", e.ID.String()),
				slog.Int("attempt", e.Attempt), slog.Int64("fence", e.Fence), slog.Any("error", e.Err))
		},
		StoreFailed: storeFailed(log),
		Purged: func(e semel.Purged) {
			if e.By == "" {
				log.LogAttrs(ctx, slog.LevelDebug, "purged", slog.Int("count", e.Count))
				return
			}
			log.LogAttrs(ctx, slog.LevelInfo, "purged", slog.String("record", e.ID.String()), slog.String("by", e.By), slog.String("who", e.Who), slog.String("reason", e.Reason))
		},
		Swept:      swept(log),
		Reconciled: func(e semel.Reconciled) { failed("the reconciler has no answer", e.ID, e.Took, e.Err) },
		Compensated: func(e semel.Compensated) {
			failed("a compensation that was resumed did not succeed", e.ID, e.Took, e.Err)
		},
		ReleaseDropped: func(e semel.ReleaseDropped) {
			log.LogAttrs(ctx, slog.LevelWarn, "too many claims wait to be released: if this one was written, its call is held or runs again when the lease ends", slog.String("record", e.ID.String()))
		},
	}
}

// decided is the verdict's word where somebody else than the holder ended the attempt: what they
// say isn't an execution, and a release isn't an end.
func decided(e *semel.Ended) slog.Attr {
	rec := store.Record{State: store.Failed, Disposition: e.Disposition, Held: e.Held}
	if e.By == "holder" && !e.Held {
		return slog.Attr{}
	}
	if e.By == store.ByOperator || e.By == store.ByReconciler {
		rec.Settled = &store.Settled{By: e.By}
	}
	return slog.String("state", string(verdict.Of(&verdict.Facts{Record: &rec}).State))
}

// sampleEvery is how often failures of one kind of call to the store are logged: while a store is
// away, each call that is refused fails, thousands in a minute.
const sampleEvery = time.Second

// storeFailed logs failures of the store: the first of a kind of call at once, and then one line
// for each second, with the last failure and how many there were.
func storeFailed(log *slog.Logger) func(semel.StoreFailed) {
	repeated := seldom.New(sampleEvery, func(e semel.StoreFailed, count int) {
		log.LogAttrs(context.Background(), slog.LevelError, "store failed", slog.String("call", e.Call), slog.Int("try", e.Try),
			slog.Int("count", count), slog.Any("error", e.Err))
	})
	return func(e semel.StoreFailed) { repeated.Tell(e.Call, e) }
}

// repeatAfter is how long swept waits before it logs a lasting problem again.
const repeatAfter = 10 * time.Minute

// swept logs why sweeps leave records undone: once, from time to time, and when that is over.
func swept(log *slog.Logger) func(semel.SweepEnded) {
	var mu sync.Mutex
	var last string
	var at time.Time
	return func(e semel.SweepEnded) {
		mu.Lock()
		defer mu.Unlock()
		text := sweepProblem(&e)
		if text == "" && e.Swept.Partial || text == last && (text == "" || time.Since(at) < repeatAfter) {
			return
		}
		if text == "" {
			log.Info("sweeps succeed again")
		} else {
			log.Error("sweep failed", slog.String("error", text))
		}
		last, at = text, time.Now()
	}
}

// sweepProblem says what a sweep could not do; empty if nothing.
func sweepProblem(e *semel.SweepEnded) string {
	if e.Err == nil {
		return ""
	}
	text := e.Err.Error()
	if first, rest, more := strings.Cut(text, "\n"); more {
		text = fmt.Sprintf("%s; and %d more", first, 1+strings.Count(rest, "\n"))
	}
	return text
}

// allOf calls the functions of each of several Events. Only the first may have those that follow a
// trace.
func allOf(first *semel.Events, more ...*semel.Events) *semel.Events {
	a := *first
	for _, b := range more {
		a.Decided = after(a.Decided, b.Decided)
		a.Ended = after(a.Ended, b.Ended)
		a.LeaseLost = after(a.LeaseLost, b.LeaseLost)
		a.StoreFailed = after(a.StoreFailed, b.StoreFailed)
		a.Purged = after(a.Purged, b.Purged)
		a.Erased = after(a.Erased, b.Erased)
		a.Swept = after(a.Swept, b.Swept)
		a.Unswept = after(a.Unswept, b.Unswept)
		a.Reconciled = after(a.Reconciled, b.Reconciled)
		a.Compensated = after(a.Compensated, b.Compensated)
		a.ReleaseDropped = after(a.ReleaseDropped, b.ReleaseDropped)
		a.Answered = after(a.Answered, b.Answered)
		a.Troubled = after(a.Troubled, b.Troubled)
	}
	return &a
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
