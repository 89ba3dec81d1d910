package ids_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// kept is a gateway on a store with evidence, whose one command counts its effects.
func kept(t *testing.T, entry string) (g *ids.Gateway, engine *semel.Engine, st *memstore.Store, effects *int) {
	t.Helper()
	st, effects = memstore.New(), new(int)
	b := &ids.Bindings{Handlers: map[string]ids.Handler{"do": func(context.Context, semel.Execution, *ids.Derivation) (semel.Result, error) {
		*effects++
		return ids.Done("Done", nil)
	}}}
	registry, err := ids.Load([]byte("version: 1\ncommands:\n  - {entity: order, action: refund, "+entry+"handler: {func: do}}\n"), ids.LoadOptions{Bindings: b})
	if err != nil {
		t.Fatal(err)
	}
	g, engine = on(t, st, registry, b)
	return g, engine, st, effects
}

func refundOf(g *ids.Gateway, sent, received time.Time) (*ids.Response, error) {
	return g.Execute(context.Background(), ids.Caller{Tenant: "acme", Principal: "alice"}, ids.Command{
		TenantID: "acme", ActorID: "alice", Intent: ids.Intent{Entity: "order", Action: "refund"}, SentAt: sent, ReceivedAt: received,
	})
}

// A delivery that was delayed past the window isn't executed, unless the registry says so.
func TestALateCommand(t *testing.T) {
	clause.Proves(t, "IDS-V.3")
	const day = 24 * time.Hour
	for _, test := range []struct {
		name, entry    string
		sent, received time.Duration // ago; zero: not given
		late           bool
	}{
		{"financial", "financial: true, ", 8 * day, 0, true},
		{"financial, received in time", "financial: true, ", 8 * day, time.Second, true},
		{"financial, sent in time", "financial: true, ", 6 * day, time.Second, false},
		{"financial, by when it was received", "financial: true, ", 0, 8 * day, true},
		{"financial, without a time", "financial: true, ", 0, 0, false},
		{"financial, with its window", "financial: true, window: 30d, ", 8 * day, 0, false},
		{"financial, that says that it runs", "financial: true, late: run, ", 8 * day, 0, false},
		{"critical", "critical: true, ", 2 * day, 0, true},
		{"any other", "", 8 * day, 0, false},
		{"any other that says that it is refused", "late: refuse, ", 8 * day, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, _, _, effects := kept(t, test.entry)
				ago := func(d time.Duration) (at time.Time) {
					if d != 0 {
						at = time.Now().Add(-d)
					}
					return at
				}
				r, err := refundOf(g, ago(test.sent), ago(test.received))
				if late := errors.Is(err, &semel.Error{Code: semel.CodeTooLate}); late != test.late || !late && err != nil || *effects != map[bool]int{false: 1}[late] {
					t.Errorf("%+v, %v, %d effects", r, err, *effects)
				}
			})
		})
	}
	t.Run("the outcome that exists is replayed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, _, _, effects := kept(t, "financial: true, ")
			if _, err := refundOf(g, time.Time{}, time.Time{}); err != nil {
				t.Fatal(err)
			}
			if r, err := refundOf(g, time.Now().Add(-8*day), time.Time{}); err != nil || r.Decision != ids.DuplicateReplayed || *effects != 1 {
				t.Errorf("%+v, %v, %d effects", r, err, *effects)
			}
		})
	})
}

// A financial or critical command whose record somebody has deleted is held.
func TestACommandWhoseRecordIsGone(t *testing.T) {
	clause.Proves(t, "IDS-XV.6")
	for entry, want := range map[string]ids.Status{"financial: true, ": ids.StatusProcessing, "financial: true, late: run, ": ids.StatusProcessing, "critical: true, ": ids.StatusProcessing, "": ids.StatusExecuted} {
		g, engine, st, effects := kept(t, entry)
		r, err := refundOf(g, time.Time{}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		id, err := store.DecodeID(r.StatusID)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := engine.Lookup(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := st.Purge(t.Context(), []store.Ref{{ID: id, Revision: rec.Revision}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		*effects = 0
		for range 2 {
			if r, err = refundOf(g, time.Time{}, time.Time{}); err != nil || r.Status != want {
				t.Errorf("%q: %+v, %v", entry, r, err)
			}
		}
		if held := want == ids.StatusProcessing; held && (*effects != 0 || r.Reason != ids.ReasonUnknownOutcome) || !held && *effects != 1 {
			t.Errorf("%q: %+v after %d effects", entry, r, *effects)
		}
	}
}
