package semeltest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/semeltest"
)

var id = semel.ID{Principal: "shop", Operation: "orders.create", Key: "order-1"}

func call() semel.Call {
	return semel.Call{Principal: id.Principal, Operation: id.Operation, Key: id.Key, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte("1"))}
}

// TestCrash: what the next process makes of a call depends on where the last one died.
func TestCrash(t *testing.T) {
	held := semel.Operation{Name: id.Operation, Financial: true, Lease: time.Minute}
	again := semel.Operation{Name: id.Operation, Lease: time.Minute, OnAbandoned: semel.RetryAbandoned}
	for _, c := range []struct {
		at   semeltest.Point
		op   semel.Operation
		ran  int // before and after the crash
		then error
	}{
		{semeltest.BeforeClaim, held, 1, nil},
		{semeltest.AfterClaim, held, 0, semel.ErrHeld},
		{semeltest.BeforeOutcome, held, 1, semel.ErrHeld},
		{semeltest.AfterOutcome, held, 1, nil},
		{semeltest.AfterClaim, again, 1, nil},
		{semeltest.BeforeOutcome, again, 2, nil},
		{semeltest.AfterOutcome, again, 1, nil},
	} {
		t.Run(string(c.at), func(t *testing.T) {
			w := semeltest.New(t, &semel.Options{Operations: []semel.Operation{c.op}})
			ran := 0
			create := func() error {
				_, _, err := semel.Do(t.Context(), w.Engine, call(), func(context.Context, semel.Execution) (int, error) {
					ran++
					return ran, nil
				})
				return err
			}
			w.Crash(c.at, func() { t.Errorf("the process lives: %v", create()) })
			w.Advance(2 * time.Minute)
			if err := create(); !errors.Is(err, c.then) || ran != c.ran {
				t.Errorf("it ran %d times, want %d; the next delivery gets %v, want %v", ran, c.ran, err, c.then)
			}
		})
	}
}

// TestRanOnce: a test that asks whether a call ran once fails if it didn't.
func TestRanOnce(t *testing.T) {
	w := semeltest.New(t, &semel.Options{Operations: []semel.Operation{{Name: id.Operation, OnAbandoned: semel.RetryAbandoned}}})
	create := func() {
		_, _, _ = semel.Do(t.Context(), w.Engine, call(), func(context.Context, semel.Execution) (int, error) { return 1, nil })
	}
	other := &reports{TB: t}
	semeltest.On(w, other).RanOnce(id)
	w.Crash(semeltest.BeforeOutcome, create)
	w.Advance(time.Hour)
	semeltest.On(w, other).RanOnce(id)
	create()
	semeltest.On(w, other).RanOnce(id)
	if other.n != 3 {
		t.Errorf("no record, an abandoned attempt and two attempts make %d failures, want 3", other.n)
	}
	w.Advance(semel.DefaultWindow + time.Hour)
	create()
	w.RanOnce(id)
	create()
	w.RanOnce(id)
	semeltest.On(w, other).Crash(semeltest.AfterClaim, create)
	if other.n != 4 {
		t.Error("a crash that nothing reached is no failure")
	}
}

// reports counts failures.
type reports struct {
	testing.TB
	n int
}

func (r *reports) Errorf(string, ...any) { r.n++ }
