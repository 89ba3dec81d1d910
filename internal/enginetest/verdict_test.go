package enginetest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

func TestEndingOfWhatAHandlerReturns(t *testing.T) {
	err := errors.New("why")
	const (
		done     = semel.DispositionCompleted
		rejected = semel.DispositionRejected
		failed   = semel.DispositionFailed
		aborted  = semel.DispositionAborted
		held     = store.Disposition(0)
	)
	// What the ledger has: nothing, an effect that did not happen, one that did, and one
	// of which nobody knows; and nothing in a financial operation.
	for name, c := range map[string]struct {
		err  error
		want [5]store.Disposition
		code string
	}{
		"a result":           {nil, [5]store.Disposition{done, done, done, held, done}, ""},
		"a plain error":      {err, [5]store.Disposition{aborted, aborted, failed, held, failed}, ""},
		"a rejection":        {semel.Rejected("no", err), [5]store.Disposition{rejected, rejected, rejected, rejected, rejected}, "no"},
		"a wrapped mark":     {errors.Join(err, semel.Rejected("no", err)), [5]store.Disposition{rejected, rejected, rejected, rejected, rejected}, "no"},
		"an abort":           {semel.Aborted(err), [5]store.Disposition{aborted, aborted, aborted, held, aborted}, ""},
		"a failure":          {semel.Failure(err), [5]store.Disposition{failed, failed, failed, held, failed}, ""},
		"an unknown outcome": {semel.Unknown(err), [5]store.Disposition{held, held, held, held, held}, ""},
		"a mark that stays":  {semel.Failure(semel.Aborted(err)), [5]store.Disposition{aborted, aborted, aborted, held, aborted}, ""},
	} {
		for i, ledger := range [5]store.EffectState{"", store.EffectRefuted, store.EffectConfirmed, store.EffectStarted, ""} {
			t.Run(name+" with "+[5]string{"nothing begun", "nothing that happened", "an effect", "an open effect", "nothing begun, financial"}[i], func(t *testing.T) {
				var effects []store.EffectRecord
				if ledger != "" {
					effects = []store.EffectRecord{{Name: "charge", State: ledger}}
				}
				end := semel.EndingOf(c.err, effects, i == 4)
				if end.Disposition != c.want[i] || end.Failure.Code != c.code {
					t.Errorf("got %+v, want %s", end, c.want[i])
				}
				if said := end.Failure.Message != ""; said != (end.Disposition != done) {
					t.Errorf("the reason is %q", end.Failure.Message)
				}
				if end.Unmarked != (c.err == err) {
					t.Errorf("unmarked: %t", end.Unmarked)
				}
			})
		}
	}
	if semel.Failure(nil) != nil {
		t.Error("no error is marked as a failure")
	}
}

func TestACallNamesItsHolder(t *testing.T) {
	inBubbleWith(t, semel.Options{Node: "node"}, semel.Operation{OnAbandoned: semel.RetryAbandoned}, func(t *testing.T, r *rig) {
		c := call("k")
		c.Holder = "who asked"
		if a := begin(t, r.Engine, c); a.Record().Holder != "who asked" {
			t.Errorf("held by %q", a.Record().Holder)
		}
		if ans := decides(t, r.Engine, call("k"), semel.InFlight); ans.Record.Holder != "who asked" {
			t.Errorf("a duplicate sees %q", ans.Record.Holder)
		}
		if a := begin(t, r.Engine, call("k2")); a.Record().Holder != "node" {
			t.Errorf("held by %q", a.Record().Holder)
		}
		for _, bad := range []string{strings.Repeat("x", 257), "\xff", "a\x00"} {
			c := call("k3")
			c.Holder = bad
			_, err := r.Begin(context.Background(), c)
			wantCode(t, err, semel.CodeInvalidCall)
		}
	})
}

func TestAnAnswerWithoutARecordHasNoError(t *testing.T) {
	if err := new(semel.Answer).Err(); err != nil {
		t.Fatal(err)
	}
}
