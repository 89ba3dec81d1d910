package semel_test

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
	for name, c := range map[string]struct {
		err          error
		closed, open store.Disposition
		code         string
	}{
		"a result":           {nil, semel.DispositionCompleted, 0, ""},
		"a plain error":      {err, semel.DispositionFailed, 0, ""},
		"a rejection":        {semel.Rejected("no", err), semel.DispositionRejected, semel.DispositionRejected, "no"},
		"a wrapped mark":     {errors.Join(err, semel.Rejected("no", err)), semel.DispositionRejected, semel.DispositionRejected, "no"},
		"an abort":           {semel.Aborted(err), semel.DispositionAborted, 0, ""},
		"an unknown outcome": {semel.Unknown(err), 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, open := range []bool{false, true} {
				want := c.closed
				if open {
					want = c.open
				}
				end := semel.EndingOf(c.err, open)
				if end.Disposition != want || end.Failure.Code != c.code {
					t.Errorf("open %v: got %+v, want %s", open, end, want)
				}
				if said := end.Failure.Message != ""; said != (want != semel.DispositionCompleted) {
					t.Errorf("open %v: the reason is %q", open, end.Failure.Message)
				}
			}
		})
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
