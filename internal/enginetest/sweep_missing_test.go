package enginetest

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
)

// TestNobodySweeps: an engine that takes calls tells once that nothing is ever removed.
func TestNobodySweeps(t *testing.T) {
	for name, test := range map[string]struct{ sweeps, tells bool }{
		"one that nobody sweeps tells once": {false, true},
		"one that is swept tells nothing":   {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []time.Duration
				e, err := semel.New(memstore.New(), &semel.Options{
					Operations: []semel.Operation{{Name: "o"}},
					Events:     &semel.Events{Unswept: func(ev semel.Unswept) { told = append(told, ev.Took) }},
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if test.sweeps {
					go e.Run(ctx, 0)
				}
				for _, key := range []string{"a", "b", "c"} {
					if _, err := e.Do(t.Context(), semel.Call{Operation: "o", Key: key}, func(context.Context, semel.Execution) (semel.Result, error) {
						return semel.Result{}, nil
					}); err != nil {
						t.Error(err)
					}
					if key == "a" && len(told) > 0 {
						t.Error("told at once")
					}
					<-time.After(time.Minute) // of virtual time
				}
				if (len(told) == 1) != test.tells || len(told) > 1 {
					t.Errorf("told %v", told)
				}
			})
		})
	}
}

// TestNobodySweepsAndNobodyListens: whoever forgets Run has no Events either, so the engine
// warns by itself, once, by the default logger.
func TestNobodySweepsAndNobodyListens(t *testing.T) {
	swept := func(e *semel.Engine) { _, _ = e.Sweep(context.Background()) }
	for name, test := range map[string]struct {
		store  semel.Store
		events *semel.Events
		before func(*semel.Engine)
		warns  int
	}{
		"without Events the engine warns once":                   {store: memstore.New(), warns: 1},
		"with other Events too":                                  {store: memstore.New(), events: &semel.Events{Ended: func(semel.Ended) {}}, warns: 1},
		"a program that was told is not warned":                  {store: memstore.New(), events: &semel.Events{Unswept: func(semel.Unswept) {}}},
		"one that is swept is not warned":                        {store: memstore.New(), before: swept},
		"a store that has no due index can't be swept by anyone": {store: bare{memstore.New()}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			before := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
			defer slog.SetDefault(before)
			synctest.Test(t, func(t *testing.T) {
				e, err := semel.New(test.store, &semel.Options{Operations: []semel.Operation{{Name: "o"}}, Events: test.events})
				if err != nil {
					t.Fatal(err)
				}
				if test.before != nil {
					test.before(e)
				}
				for _, key := range []string{"a", "b", "c", "d"} {
					if _, err := e.Do(t.Context(), semel.Call{Operation: "o", Key: key}, func(context.Context, semel.Execution) (semel.Result, error) {
						return semel.Result{}, nil
					}); err != nil {
						t.Error(err)
					}
					<-time.After(time.Minute) // of virtual time
				}
			})
			if n := strings.Count(out.String(), "level=WARN"); n != test.warns || strings.Count(out.String(), "Engine.Run") != n || strings.Count(out.String(), "\n") != n {
				t.Errorf("the log:\n%s", &out)
			}
		})
	}
}
