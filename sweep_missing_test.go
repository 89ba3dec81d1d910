package semel_test

import (
	"context"
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
					Events:     &semel.Events{Unswept: func(ev semel.Event) { told = append(told, ev.Took) }},
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
