package door_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// handler is a [door.Handler] made of a function.
type handler func(x door.Run) semel.Ending

func (h handler) Run(x door.Run) semel.Ending { return h(x) }

// deaf is a store whose writes are answered only while it listens, and counts what operators are
// told of.
type deaf struct {
	*memstore.Store
	deaf     atomic.Bool
	troubled atomic.Int64
}

func (s *deaf) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if s.deaf.Load() {
		<-ctx.Done()
		return nil, false, ctx.Err()
	}
	return s.Store.Apply(ctx, w)
}

// running runs a test on a runner in virtual time.
func running(t *testing.T, body func(t *testing.T, e *semel.Engine, st *deaf, r *door.Runner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := &deaf{Store: memstore.New()}
		e, err := semel.New(st, &semel.Options{
			Operations: []semel.Operation{{Name: "op", Lease: 3 * time.Second, OnFailure: semel.RetryFailure}, {Name: "pay", Financial: true}},
			Events:     &semel.Events{Unswept: func(semel.Unswept) {}, Troubled: func(semel.Troubled) { st.troubled.Add(1) }},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := door.NewRunner(e)
		body(t, e, st, r)
		if err := errors.Join(r.Close(t.Context()), e.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

var call = semel.Call{Principal: "p", Operation: "op", Key: "k"}

// stored is the record of call.
func stored(t *testing.T, e *semel.Engine) semel.Record {
	t.Helper()
	rec, err := e.Lookup(t.Context(), semel.ID{Principal: "p", Operation: "op", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestRunner(t *testing.T) {
	t.Run("an outcome is durable when Do returns, and is for duplicates too", func(t *testing.T) {
		running(t, func(t *testing.T, e *semel.Engine, _ *deaf, r *door.Runner) {
			for _, want := range []semel.Decision{semel.Execute, semel.Replay} {
				ans, err := r.Do(t.Context(), call, door.Work{Handler: handler(func(x door.Run) semel.Ending {
					ctx, cancel := x.Context()
					defer cancel()
					if _, limited := ctx.Deadline(); limited || ctx.Err() != nil {
						t.Error("its time is limited")
					}
					return semel.Ending{Disposition: semel.DispositionCompleted, Result: semel.Result{Data: []byte("done")}}
				})})
				if err != nil || ans.Decision != want || string(stored(t, e).Result.Data) != "done" {
					t.Errorf("%q, %v", ans.Decision, err)
				}
			}
		})
	})
	t.Run("a panic abandons the attempt and goes on", func(t *testing.T) {
		running(t, func(t *testing.T, e *semel.Engine, _ *deaf, r *door.Runner) {
			defer func() {
				if v := recover(); v != "boom" {
					t.Errorf("recovered %v", v)
				}
				if rec := stored(t, e); rec.HeldReason != "the handler panicked" {
					t.Errorf("the record is %s, held: %q", rec.State, rec.HeldReason)
				}
			}()
			_, _ = r.Do(t.Context(), call, door.Work{Handler: handler(func(door.Run) semel.Ending { panic("boom") })})
		})
	})
	t.Run("an end that the store doesn't answer is recorded later, and Close waits for it", func(t *testing.T) {
		running(t, func(t *testing.T, e *semel.Engine, st *deaf, r *door.Runner) {
			time.AfterFunc(7*time.Second, func() { st.deaf.Store(false) })
			_, err := r.Do(t.Context(), call, door.Work{Handler: handler(func(door.Run) semel.Ending {
				st.deaf.Store(true)
				return semel.Ending{Disposition: semel.DispositionCompleted, Result: semel.Result{Data: []byte("done")}}
			})})
			if !door.Undecided(err) {
				t.Errorf("got %v", err)
			}
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if rec := stored(t, e); string(rec.Result.Data) != "done" || st.troubled.Load() != 1 {
				t.Errorf("the record is %s, told of %d times", rec.State, st.troubled.Load())
			}
		})
	})
	t.Run("nothing runs that could not be claimed", func(t *testing.T) {
		running(t, func(t *testing.T, _ *semel.Engine, st *deaf, r *door.Runner) {
			st.deaf.Store(true)
			ans, err := r.Do(t.Context(), call, door.Work{Handler: handler(func(door.Run) semel.Ending {
				t.Error("it runs")
				return semel.Ending{}
			})})
			if err == nil {
				t.Errorf("got %q without an error", ans.Decision)
			}
			st.deaf.Store(false)
		})
	})
	t.Run("a handler is told when its time is over", func(t *testing.T) {
		running(t, func(t *testing.T, _ *semel.Engine, _ *deaf, r *door.Runner) {
			began := time.Now()
			_, err := r.Do(t.Context(), call, door.Work{Timeout: time.Minute, Handler: handler(func(x door.Run) semel.Ending {
				ctx, cancel := x.Context()
				defer cancel()
				<-ctx.Done()
				if time.Since(began) != time.Minute || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
					t.Errorf("after %v: %v", time.Since(began), ctx.Err())
				}
				return semel.Ending{Disposition: semel.DispositionAborted}
			})})
			if err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("an error of a handler whose lease was lost is not recorded", func(t *testing.T) {
		running(t, func(t *testing.T, e *semel.Engine, st *deaf, r *door.Runner) {
			ans, err := r.Do(t.Context(), call, door.Work{Handler: handler(func(x door.Run) semel.Ending {
				st.deaf.Store(true)
				<-x.Attempt.Context().Done()
				st.deaf.Store(false)
				return semel.EndingOf(errors.New("told to stop"), nil, false)
			})})
			if ans.Decision != semel.Execute || !errors.Is(err, semel.ErrLeaseLost) {
				t.Errorf("%q, %v", ans.Decision, err)
			}
			if rec := stored(t, e); rec.State != semel.Processing {
				t.Errorf("the record is %s, %s", rec.State, rec.Disposition)
			}
		})
	})
}

// An error without a mark is believed as far as the ledger doesn't say otherwise; what doors keep
// there for themselves says nothing.
func TestAnEndingIsHeldAgainstTheLedger(t *testing.T) {
	for name, c := range map[string]struct {
		effect string
		result error
		want   store.Disposition
	}{
		"no effect":                        {"", nil, semel.DispositionAborted},
		"one that was completed":           {"charge", nil, semel.DispositionFailed},
		"one whose result nobody knows":    {"charge", semel.Unknown(errors.New("no answer")), 0},
		"one of the door's, that is still": {door.EffectPrefix + ".upstream", semel.Unknown(errors.New("no answer")), semel.DispositionAborted},
	} {
		t.Run(name, func(t *testing.T) {
			running(t, func(t *testing.T, _ *semel.Engine, _ *deaf, r *door.Runner) {
				_, _ = r.Do(t.Context(), call, door.Work{Handler: handler(func(x door.Run) semel.Ending {
					if c.effect != "" {
						_, _ = semel.Effect(t.Context(), x.Attempt, c.effect, func(context.Context, string) (int, error) { return 1, c.result })
					}
					end := x.Ending(errors.New("no"))
					if end.Disposition != c.want || !end.Unmarked {
						t.Errorf("it ends as %+v, want %v", end, c.want)
					}
					return end
				})})
			})
		})
	}
}

// What an operation that is financial makes of an error without a mark, under an attempt and in a
// transaction.
func TestAnEndingIsOfItsOperation(t *testing.T) {
	pay := call
	pay.Operation = "pay"
	once := transactor(func(ctx context.Context, fn func(context.Context) (semel.Result, error)) (semel.Answer, error) {
		_, err := fn(ctx)
		return semel.Answer{Decision: semel.Execute, Record: &semel.Record{State: semel.Failed}}, err
	})
	for name, c := range map[string]struct {
		call semel.Call
		tx   door.Transactor
		want store.Disposition
	}{
		"an attempt":                     {call, nil, semel.DispositionAborted},
		"a financial one":                {pay, nil, semel.DispositionFailed},
		"a transaction":                  {call, once, semel.DispositionAborted},
		"one of a financial operation's": {pay, once, semel.DispositionFailed},
	} {
		running(t, func(t *testing.T, _ *semel.Engine, _ *deaf, r *door.Runner) {
			_, err := r.Do(t.Context(), c.call, door.Work{Tx: c.tx, Handler: handler(func(x door.Run) semel.Ending {
				end := x.Ending(errors.New("no"))
				if end.Disposition != c.want {
					t.Errorf("%s ends as %v, want %v", name, end.Disposition, c.want)
				}
				return end
			})})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// What leaves open what happened, so that asking again makes sense.
func TestUndecided(t *testing.T) {
	for _, code := range append(semel.Codes(), door.CodeInternal) {
		want := code == semel.CodeUnknown || code == semel.CodeStoreUnavailable
		if got := door.Undecided(fmt.Errorf("at the store: %w", &semel.Error{Code: code})); got != want {
			t.Errorf("%s: %v", code, got)
		}
	}
	if door.Undecided(nil) || door.Undecided(errors.New("no")) {
		t.Error("an error of anybody is one")
	}
}

// What a delivery gets that has run nothing, and what a door adds to what its handler has kept.
func TestOutcome(t *testing.T) {
	result := semel.Result{Data: []byte("done")}
	failed := &semel.Error{Code: semel.CodeStoreUnavailable}
	record := func(res semel.Result) *semel.Record { return &semel.Record{State: semel.Completed, Result: res} }
	for name, c := range map[string]struct {
		ans  semel.Answer
		err  error
		want semel.Result
		code semel.Code // empty: no error
	}{
		"executed":                      {semel.Answer{Decision: semel.Execute, Record: record(result)}, nil, semel.Result{}, ""},
		"executed, and it isn't kept":   {semel.Answer{Decision: semel.Execute, Record: record(result)}, failed, semel.Result{}, semel.CodeStoreUnavailable},
		"a replay":                      {semel.Answer{Decision: semel.Replay, Record: record(result)}, nil, result, ""},
		"one of nothing":                {semel.Answer{Decision: semel.Replay, Record: record(semel.Result{})}, nil, semel.Result{}, ""},
		"one of what could not be kept": {semel.Answer{Decision: semel.Replay, Record: record(semel.Result{Tombstone: true})}, nil, semel.Result{}, semel.CodeResultNotKept},
		"in flight":                     {semel.Answer{Decision: semel.InFlight, Record: record(result)}, nil, semel.Result{}, semel.CodeInFlight},
		"nothing was decided":           {semel.Answer{}, failed, semel.Result{}, semel.CodeStoreUnavailable},
	} {
		got, err := door.Outcome(&c.ans, c.err)
		if string(got.Data) != string(c.want.Data) || (err == nil) != (c.code == "") || err != nil && door.CodeOf(err) != c.code {
			t.Errorf("%s: %q, %v", name, got.Data, err)
		}
	}
}

// Close gives up with its context, and so does what is still to be recorded.
func TestCloseGivesUp(t *testing.T) {
	running(t, func(t *testing.T, _ *semel.Engine, st *deaf, r *door.Runner) {
		_, err := r.Do(t.Context(), call, door.Work{Handler: handler(func(door.Run) semel.Ending {
			st.deaf.Store(true)
			return semel.Ending{Disposition: semel.DispositionCompleted}
		})})
		if !door.Undecided(err) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := r.Close(t.Context()); err != nil || time.Since(began) > 20*time.Second {
			t.Errorf("it goes on for %v: %v", time.Since(began), err)
		}
	})
}

// An attempt ends by the declaration that it began with, whatever a reload declares meanwhile.
func TestAReloadDoesNotChangeHowAnAttemptEnds(t *testing.T) {
	running(t, func(t *testing.T, e *semel.Engine, _ *deaf, r *door.Runner) {
		pay := call
		pay.Operation = "pay"
		_, err := r.Do(t.Context(), pay, door.Work{Handler: handler(func(x door.Run) semel.Ending {
			if err := e.Register(semel.Operation{Name: "pay"}); err != nil {
				t.Error(err)
			}
			return x.Ending(errors.New("no answer"))
		})})
		if err != nil {
			t.Fatal(err)
		}
		rec, err := e.Lookup(t.Context(), semel.ID{Principal: "p", Operation: "pay", Key: "k"})
		if err != nil || rec.Disposition != semel.DispositionFailed {
			t.Errorf("a failed call that moves money is %v, %v", rec.Disposition, err)
		}
	})
}
