package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// confirm starts an effect and settles it with a result of so many bytes.
func confirm(t *testing.T, a *semel.Attempt, name string, size int) {
	t.Helper()
	_, err := a.StartEffect(t.Context(), name)
	must(t, err)
	must(t, a.SettleEffect(t.Context(), ofSize(name, size)))
}

func ofSize(name string, size int) store.EffectFinding {
	return store.EffectFinding{Name: name, State: store.EffectConfirmed, Result: semel.Result{Data: bytes.Repeat([]byte("x"), size)}}
}

// wantLedger compares the ledger with sizes of results, -1 for a tombstone.
func wantLedger(t *testing.T, effects []store.EffectRecord, sizes ...int) {
	t.Helper()
	if len(effects) != len(sizes) {
		t.Fatalf("%d effects in the ledger", len(effects))
	}
	for i, ef := range effects {
		if ef.State != store.EffectConfirmed || ef.Result.Tombstone != (sizes[i] < 0) || len(ef.Result.Data) != max(sizes[i], 0) {
			t.Errorf("%s is %s with %d bytes, tombstone %t; want %d", ef.Name, ef.State, len(ef.Result.Data), ef.Result.Tombstone, sizes[i])
		}
	}
}

func TestTheLedgerIsBoundedInSum(t *testing.T) {
	const quarter = semel.MaxLedger / 4
	inBubble(t, semel.Operation{MaxResult: quarter, Effects: []string{"*"}, Lease: time.Hour}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		sizes := []int{quarter, quarter, quarter, quarter, -1, 0}
		for i, size := range sizes {
			confirm(t, a, fmt.Sprint(i), max(size, -size))
		}
		wantLedger(t, a.Effects(), sizes...)
		// Telling the same again is harmless, also where it was not kept.
		must(t, a.SettleEffect(t.Context(), ofSize("3", quarter)))
		must(t, a.SettleEffect(t.Context(), ofSize("4", 1)))
		wantCode(t, a.SettleEffect(t.Context(), store.EffectFinding{Name: "4", State: store.EffectRefuted}), semel.CodeAlreadyEnded)
		// An effect of which nothing is kept happened all the same.
		must(t, a.Abandon(t.Context(), ""))
		b := begin(t, r.Engine, call("k"))
		_, err := b.StartEffect(t.Context(), "4")
		wantCode(t, err, semel.CodeResultNotKept)
		ef, err := b.StartEffect(t.Context(), "3")
		if must(t, err); len(ef.Result.Data) != quarter {
			t.Errorf("replayed %d bytes", len(ef.Result.Data))
		}
		wantLedger(t, b.Effects(), sizes...)
	})
}

// The caller of [semel.Effect] gets what the provider returned, kept or not.
func TestAResultBeyondTheLedgerIsReturned(t *testing.T) {
	long := strings.Repeat("x", semel.MaxLedger/3)
	inBubble(t, semel.Operation{MaxResult: semel.MaxLedger}, func(t *testing.T, r *rig) {
		_, err := r.Do(t.Context(), call("k"), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			for i := range 4 {
				got, err := semel.Effect(ctx, x, fmt.Sprint(i), func(context.Context, string) (string, error) { return long, nil })
				if err != nil || got != long {
					t.Errorf("effect %d: %d bytes, %v", i, len(got), err)
				}
			}
			return semel.Result{}, nil
		})
		must(t, err)
		rec, err := r.Lookup(t.Context(), id("k"))
		must(t, err)
		wantLedger(t, rec.Effects, len(long)+2, len(long)+2, -1, -1) // with the quotes three are too many
	})
}

func TestTheFirstResultMayBeLargerThanTheLedger(t *testing.T) {
	const large = 2 * semel.MaxLedger
	inBubble(t, semel.Operation{MaxResult: large}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		confirm(t, a, "first", large)
		confirm(t, a, "second", 1)
		confirm(t, a, "empty", 0)
		_, err := a.StartEffect(t.Context(), "open")
		must(t, err)
		if ef := a.Effects()[3]; ef.State != store.EffectStarted || ef.Result.Tombstone {
			t.Errorf("an effect that was only started is %+v", ef)
		}
		must(t, a.SettleEffect(t.Context(), store.EffectFinding{Name: "open", State: store.EffectRefuted}))
		wantLedger(t, a.Effects()[:3], large, -1, 0)
	})
}

func TestSettlementsKeepTheLedgerBounded(t *testing.T) {
	inBubble(t, semel.Operation{MaxResult: semel.MaxLedger}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		confirm(t, a, "a", semel.MaxLedger-1)
		for _, name := range []string{"b", "c"} {
			_, err := a.StartEffect(t.Context(), name)
			must(t, err)
		}
		must(t, a.Hold(t.Context(), ""))
		rec, err := r.Settle(t.Context(), id("k"), semel.Settlement{Effects: []store.EffectFinding{ofSize("b", 2), ofSize("c", 1)}}, "")
		must(t, err)
		wantLedger(t, rec.Effects, semel.MaxLedger-1, -1, 1)
	})
}
