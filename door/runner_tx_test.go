package door_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/store"
)

// transactor is a [door.Transactor] made of a function.
type transactor func(ctx context.Context, fn func(context.Context) (semel.Result, error)) (semel.Answer, error)

func (transactor) Check(*semel.Engine) error { return nil }

func (f transactor) DoTx(ctx context.Context, _ *semel.Engine, _ semel.Call, fn func(context.Context) (semel.Result, error)) (semel.Answer, error) {
	return f(ctx, fn)
}

// What the handler has said ends the transaction. What isn't recorded although it was to be is an
// error; what was rolled back because the handler said so is none.
func TestRunnerInTransactions(t *testing.T) {
	failed := errors.New("the commit failed")
	for name, c := range map[string]struct {
		end       semel.Ending
		committed bool
		fails     bool
	}{
		"completed":               {semel.Ending{Disposition: semel.DispositionCompleted, Result: semel.Result{Data: []byte("done")}}, true, false},
		"completed, not recorded": {semel.Ending{Disposition: semel.DispositionCompleted}, false, true},
		"rejected":                {semel.Ending{Disposition: semel.DispositionRejected, Failure: store.Failure{Code: "no_funds", Message: "no"}}, true, false},
		"rejected, not recorded":  {semel.Ending{Disposition: semel.DispositionRejected, Failure: store.Failure{Message: "no"}}, false, true},
		"failed":                  {semel.Ending{Disposition: semel.DispositionFailed, Failure: store.Failure{Message: "no"}}, true, false},
		"failed, not recorded":    {semel.Ending{Disposition: semel.DispositionFailed, Failure: store.Failure{Message: "no"}}, false, true},
		"aborted":                 {semel.Ending{Disposition: semel.DispositionAborted, Failure: store.Failure{Message: "no"}}, false, false},
		"unknown":                 {semel.Ending{Failure: store.Failure{Message: "no"}}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			running(t, func(t *testing.T, _ *semel.Engine, st *deaf, r *door.Runner) {
				ans, err := r.Do(t.Context(), call, door.Work{
					Handler: handler(func(x door.Run) semel.Ending {
						if x.Attempt != nil || x.Tx == nil || x.Late() || !x.Deadline.IsZero() {
							t.Errorf("it runs with %+v", x)
						}
						return c.end
					}),
					Tx: transactor(func(ctx context.Context, fn func(context.Context) (semel.Result, error)) (semel.Answer, error) {
						res, err := fn(ctx)
						if got := semel.EndingOf(err, nil, false); got.Disposition != c.end.Disposition || got.Failure != c.end.Failure || string(res.Data) != string(c.end.Result.Data) {
							t.Errorf("the transaction ends as %+v with %q", got, res.Data)
						}
						rec := &semel.Record{State: semel.Processing}
						if c.committed {
							rec.State = semel.Failed
						} else if err == nil {
							err = failed
						}
						return semel.Answer{Decision: semel.Execute, Record: rec}, err
					}),
				})
				if ans.Decision != semel.Execute || (err != nil) != c.fails || (st.troubled.Load() != 0) != c.fails {
					t.Errorf("%q, %v, told of %d times", ans.Decision, err, st.troubled.Load())
				}
			})
		})
	}
}

// What was decided without a run is for the door to answer, and no trouble.
func TestNothingRunsInATransaction(t *testing.T) {
	late := &semel.Error{Code: semel.CodeTooLate}
	for name, c := range map[string]struct {
		ans     semel.Answer
		err     error
		trouble int64
	}{
		"a replay":      {semel.Answer{Decision: semel.Replay, Record: &semel.Record{}}, nil, 0},
		"a refusal":     {semel.Answer{Decision: semel.TooLate, Record: &semel.Record{}}, late, 0},
		"no decision":   {semel.Answer{}, late, 0},
		"no connection": {semel.Answer{Decision: semel.Execute, Record: &semel.Record{}}, late, 1},
	} {
		t.Run(name, func(t *testing.T) {
			running(t, func(t *testing.T, _ *semel.Engine, st *deaf, r *door.Runner) {
				ans, err := r.Do(t.Context(), call, door.Work{
					Handler: handler(func(door.Run) semel.Ending { t.Error("it runs"); return semel.Ending{} }),
					Tx: transactor(func(context.Context, func(context.Context) (semel.Result, error)) (semel.Answer, error) {
						return c.ans, c.err
					}),
				})
				if ans.Decision != c.ans.Decision || err != c.err || st.troubled.Load() != c.trouble {
					t.Errorf("%q, %v, told of %d times", ans.Decision, err, st.troubled.Load())
				}
			})
		})
	}
}

// A caller may hang up before their handler runs in a transaction, and not afterwards; and the
// handler's time is that of all its runs.
func TestWhenARunInATransactionEnds(t *testing.T) {
	completed := semel.Ending{Disposition: semel.DispositionCompleted}
	execute := semel.Answer{Decision: semel.Execute, Record: &semel.Record{}}
	t.Run("a caller who hangs up while they wait", func(t *testing.T) {
		running(t, func(t *testing.T, _ *semel.Engine, _ *deaf, r *door.Runner) {
			ctx, hangUp := context.WithCancel(t.Context())
			_, err := r.Do(ctx, call, door.Work{
				Handler: handler(func(door.Run) semel.Ending { t.Error("it runs"); return completed }),
				Tx: transactor(func(ctx context.Context, fn func(context.Context) (semel.Result, error)) (semel.Answer, error) {
					hangUp()
					<-ctx.Done()
					_, err := fn(ctx)
					return execute, err
				}),
			})
			if err == nil {
				t.Error("the caller is told that it ran")
			}
		})
	})
	t.Run("one who hangs up while it runs", func(t *testing.T) {
		running(t, func(t *testing.T, _ *semel.Engine, _ *deaf, r *door.Runner) {
			ctx, hangUp := context.WithCancel(t.Context())
			_, err := r.Do(ctx, call, door.Work{
				Handler: handler(func(x door.Run) semel.Ending {
					hangUp()
					synctest.Wait()
					if ctx, cancel := x.Context(); ctx.Err() != nil {
						t.Error("it is told to stop")
					} else {
						cancel()
					}
					return completed
				}),
				Tx: transactor(func(ctx context.Context, fn func(context.Context) (semel.Result, error)) (semel.Answer, error) {
					_, err := fn(ctx)
					return execute, err
				}),
			})
			if err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("the second run has what the first has left of the time", func(t *testing.T) {
		running(t, func(t *testing.T, _ *semel.Engine, _ *deaf, r *door.Runner) {
			const timeout = 10 * time.Second
			began, runs := time.Now(), 0
			_, err := r.Do(t.Context(), call, door.Work{
				Timeout: timeout,
				Handler: handler(func(x door.Run) semel.Ending {
					ctx, cancel := x.Context()
					defer cancel()
					if x.Deadline != began.Add(timeout) {
						t.Errorf("it may run until %v", x.Deadline)
					}
					if runs++; runs == 1 {
						<-time.After(timeout / 2)
						if x.Late() {
							t.Error("it is late half-way")
						}
						return completed
					}
					<-ctx.Done()
					if time.Since(began) != timeout || !x.Late() {
						t.Errorf("it ends after %v, late: %v", time.Since(began), x.Late())
					}
					return semel.Ending{Disposition: semel.DispositionAborted}
				}),
				Tx: transactor(func(ctx context.Context, fn func(context.Context) (semel.Result, error)) (semel.Answer, error) {
					_, _ = fn(ctx) // rolled back, because of others
					_, err := fn(ctx)
					return execute, err
				}),
			})
			if err != nil || runs != 2 {
				t.Errorf("%d runs, %v", runs, err)
			}
		})
	})
}
