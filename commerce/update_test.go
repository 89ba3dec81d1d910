package commerce_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store/memstore"
)

func newEngine(t *testing.T, ops ...semel.Operation) *semel.Engine {
	t.Helper()
	engine, err := semel.New(memstore.New(), &semel.Options{Operations: ops})
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

// TestUpdates: the updates of one type in a session are one sequence, and no other's.
func TestUpdates(t *testing.T) {
	clause.Proves(t, "MAP-SESS.2", "MAP-SESS.4")
	engine := newEngine(t, commerce.Updates("sessions.update"))
	runs := 0
	deliver := func(u commerce.Update) (semel.Answer, error) {
		call := semel.Call{Operation: "sessions.update"}
		if err := u.Name(&call); err != nil {
			return semel.Answer{}, err
		}
		return engine.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) {
			runs++
			return semel.Result{Data: fmt.Append(nil, u.Number)}, nil
		})
	}
	for i, step := range []struct {
		update commerce.Update
		want   semel.Decision
		last   uint64
	}{
		{commerce.Update{"s1", "save_cart", 2}, semel.Execute, 2},
		{commerce.Update{"s1", "save_cart", 5}, semel.Execute, 5},
		{commerce.Update{"s1", "save_cart", 2}, semel.Replay, 2},
		{commerce.Update{"s1", "save_cart", 5}, semel.Replay, 5},
		{commerce.Update{"s1", "save_cart", 3}, semel.Superseded, 5},
		{commerce.Update{"s1", "save_preferences", 3}, semel.Execute, 3},
		{commerce.Update{"s2", "save_cart", 1}, semel.Execute, 1},
		{commerce.Update{"s1", "save_cart", math.MaxUint64}, semel.Execute, math.MaxUint64},
		{commerce.Update{"s1", "save_cart", 6}, semel.Superseded, math.MaxUint64},
	} {
		ans, err := deliver(step.update)
		if ans.Decision != step.want || ans.Record.Sequence != step.last {
			t.Errorf("%d: %+v gets %s, last number %d, want %s and %d", i, step.update, ans.Decision, ans.Record.Sequence, step.want, step.last)
		}
		if got := string(ans.Record.Result.Data); ans.Decision != semel.Superseded && got != fmt.Sprint(step.update.Number) {
			t.Errorf("%d: the outcome is %s", i, got)
		}
		if refused := errors.Is(err, &semel.Error{Code: semel.CodeSuperseded}); refused != (step.want == semel.Superseded) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if runs != 5 {
		t.Errorf("%d updates ran", runs)
	}
	for _, u := range []commerce.Update{{"s1", "save_cart", 0}, {"", "save_cart", 1}, {"s1", "", 1}} {
		if _, err := deliver(u); err == nil {
			t.Errorf("%+v is accepted", u)
		}
	}
}

// TestUpdatesAtOnce: of updates that arrive together in any order, the state is that of the
// highest, and none runs twice or after a higher one.
func TestUpdatesAtOnce(t *testing.T) {
	clause.Proves(t, "MAP-SESS.2")
	op := commerce.Updates("sessions.update")
	op.InFlight = semel.WaitInFlight
	engine := newEngine(t, op)
	var state []uint64
	var group sync.WaitGroup
	for n := range uint64(20) {
		for range 3 {
			group.Go(func() {
				call := semel.Call{Operation: "sessions.update"}
				if err := (commerce.Update{Session: "s1", Type: "save_cart", Number: n + 1}).Name(&call); err != nil {
					t.Error(err)
				}
				ans, err := engine.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) {
					state = append(state, n+1) // one number at a time
					return semel.Result{}, nil
				})
				if err != nil && ans.Decision != semel.Superseded {
					t.Error(err)
				}
			})
		}
	}
	group.Wait()
	for i := range state[1:] {
		if state[i] >= state[i+1] {
			t.Fatalf("the numbers ran as %v", state)
		}
	}
	if state[len(state)-1] != 20 {
		t.Errorf("the last is %v", state)
	}
}
