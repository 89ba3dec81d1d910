package door

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/engine/background"
	"github.com/semelhq/semel/store"
)

// Handler does the work of one call, for a door that answers its caller. It keeps the caller's
// answer, in the door's own form, until [Runner.Do] has returned.
type Handler interface {
	// Run does the work and says how its attempt ends. A panic, or runtime.Goexit, abandons the
	// attempt and continues. In transactions it may run again: the earlier run was then rolled
	// back.
	Run(x Run) semel.Ending
}

// Run is the right to run a handler once: under an attempt or in a transaction.
type Run struct {
	// Attempt is nil in a transaction.
	Attempt *semel.Attempt
	// Tx is the context that carries the transaction; nil outside of one.
	Tx context.Context
	// Deadline is when the handler's time is up; zero: never. In a transaction, it covers all
	// runs and the commit.
	Deadline time.Time

	runner    *Runner
	operation string
}

// Context returns the context for the work: it ends when the lease is lost or the time is up,
// but not when the caller hangs up. Call cancel when the handler returns.
func (x *Run) Context() (ctx context.Context, cancel context.CancelFunc) {
	if ctx = x.Tx; x.Attempt != nil {
		ctx = x.Attempt.Context()
	}
	if x.Deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, x.Deadline)
}

// Ending says how an attempt ends after its work has returned err, by the rule of
// [semel.Engine.Do]. For an unmarked error it believes that nothing was done if no effect in
// the ledger was completed. So make a call to another system an effect, or mark its error by
// [semel.Unknown] if no answer came.
func (x *Run) Ending(err error) semel.Ending {
	if x.Attempt != nil {
		return semel.EndingOf(err, Effects(x.Attempt), x.Attempt.Financial())
	}
	op, _ := x.runner.engine.Internal().Operation(x.operation)
	return semel.EndingOf(err, nil, op.Financial)
}

// Late reports whether a run in a transaction has ended too late to be committed.
func (x *Run) Late() bool {
	return x.Tx != nil && (x.Tx.Err() != nil || !x.Deadline.IsZero() && !time.Now().Before(x.Deadline))
}

// Transactor runs calls inside transactions of your database, so that a call's claim, its
// handler's writes and its outcome commit together. Stores offer one: pgstore.Transactions is
// for PostgreSQL by pgx. Its methods are called concurrently.
type Transactor interface {
	// Check says why calls of the engine can't be part of these transactions, or returns nil.
	// It is called once for each route.
	Check(engine *semel.Engine) error
	// DoTx is [semel.Engine.DoTx], with a context for fn that carries the transaction. If
	// a transaction is rolled back because of others, it runs fn again in another one.
	DoTx(ctx context.Context, engine *semel.Engine, call semel.Call, fn func(ctx context.Context) (semel.Result, error)) (semel.Answer, error)
}

// Work says how to execute a call.
type Work struct {
	Handler Handler
	// Timeout is how long the handler may run; zero: as long as it likes.
	Timeout time.Duration
	// Tx runs the handler inside a transaction. Nil: under an attempt.
	Tx Transactor
}

// Runner runs calls for doors that answer their callers: it begins a call, has its handler
// do the work, and makes the outcome durable before the caller gets an answer. Make one
// with [NewRunner]; all methods may be called concurrently.
type Runner struct {
	engine *semel.Engine

	background background.Group // ends of attempts that are still being recorded
	closing    context.Context
	stop       context.CancelFunc
}

// NewRunner makes a runner. If something keeps it from recording an outcome at once, it reports
// that to the engine's Events, see Troubled of [semel.Events].
func NewRunner(engine *semel.Engine) *Runner {
	r := &Runner{engine: engine}
	r.closing, r.stop = context.WithCancel(context.Background())
	return r
}

// Declare registers the operation of a door's calls, unless it is only the name of one that the
// engine has, and returns it with its defaults.
func Declare(engine *semel.Engine, op semel.Operation) (semel.Operation, error) {
	registered, known := engine.Internal().Operation(op.Name)
	if known && reflect.DeepEqual(op, semel.Operation{Name: op.Name}) {
		return registered, nil
	}
	if err := engine.Register(op); err != nil {
		return op, err
	}
	registered, _ = engine.Internal().Operation(op.Name)
	return registered, nil
}

// Do delivers a call. If the decision is Execute, the handler has run; an error then means that
// its ending isn't durable, and without one the caller may have what the handler has kept. If
// the decision is empty, the engine has decided nothing, and the error says why. For any other
// decision nothing was run.
//
// A caller who hangs up ends neither the work nor its recording, only their waiting for
// another's outcome: Do returns when its handler has, and its end is durable. A panic of the
// handler continues out of Do. If the store doesn't say whether it has the end of an attempt,
// Do returns an error that [Undecided] recognizes and keeps asking in the background; see
// [Runner.Close].
//
// A crash before the end is durable leaves a lease that ends, and an attempt that is settled by
// policy. A crash after it leaves nothing to do: the retry gets the outcome. In a transaction,
// a crash before the commit leaves nothing at all.
func (r *Runner) Do(ctx context.Context, call semel.Call, w Work) (semel.Answer, error) {
	turns := r.engine.Internal()
	if ans, ok := turns.Turn(ctx, &call); !ok {
		return ans, nil
	}
	defer turns.EndTurn(&call)
	if w.Tx != nil {
		return r.doTx(ctx, call, w)
	}
	ans, err := r.engine.Begin(ctx, call)
	if err != nil || ans.Decision != semel.Execute {
		return ans, err
	}
	x := Run{Attempt: ans.Attempt, runner: r, operation: call.Operation}
	if w.Timeout > 0 {
		x.Deadline = time.Now().Add(w.Timeout)
	}
	returned := false
	defer func() {
		if !returned {
			// The panic continues, and nobody is left to get an error.
			_ = r.end(ctx, x.Attempt, panicked)
		}
	}()
	end := w.Handler.Run(x)
	returned = true
	if end.Unmarked {
		// The error of a handler that had to stop because the lease was lost says nothing
		// about the work. When the lease ends, the ledger and the policy decide.
		if lost := context.Cause(x.Attempt.Context()); lost != nil {
			return ans, lost
		}
	}
	return ans, r.end(ctx, x.Attempt, end)
}

// panicked ends an attempt if its handler did not return.
var panicked = semel.Ending{Disposition: semel.DispositionAbandoned, Failure: store.Failure{Message: "the handler panicked"}}

// doTx is Do inside transactions.
func (r *Runner) doTx(ctx context.Context, call semel.Call, w Work) (semel.Answer, error) {
	// Callers may hang up while they wait for another delivery's outcome. Once their handler
	// runs, hanging up has no effect.
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	begun := context.AfterFunc(ctx, cancel)
	defer begun()
	var (
		end      semel.Ending
		ran      bool
		deadline time.Time // of all runs together
		timer    *time.Timer
	)
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	ans, err := w.Tx.DoTx(waiting, r.engine, call, func(tx context.Context) (semel.Result, error) {
		begun()
		if tx.Err() != nil {
			return semel.Result{}, semel.Aborted(tx.Err())
		}
		if w.Timeout > 0 && !ran {
			deadline = time.Now().Add(w.Timeout)
			timer = time.AfterFunc(w.Timeout, cancel)
		}
		ran = true
		end = w.Handler.Run(Run{Tx: tx, Deadline: deadline, runner: r, operation: call.Operation})
		return end.Result, errorOf(&end)
	})
	if ans.Decision != semel.Execute || err == nil {
		return ans, err
	}
	if ran && (!keeps(&end) || ans.Record != nil && ans.Record.State.Terminal()) {
		return ans, nil // the error is the handler's own, and was applied
	}
	r.report(call.Door, err)
	return ans, err
}

// keeps reports whether an ending is recorded in a transaction. Otherwise everything is rolled
// back, so nothing was done, whatever the handler doesn't know.
func keeps(end *semel.Ending) bool {
	switch end.Disposition {
	case semel.DispositionCompleted, semel.DispositionRejected, semel.DispositionFailed:
		return true
	}
	return false
}

// errorOf returns the error that makes a function in a transaction end its call like this.
func errorOf(end *semel.Ending) error {
	why := errors.New(end.Failure.Message)
	switch end.Disposition {
	case semel.DispositionCompleted:
		return nil
	case semel.DispositionRejected:
		return semel.Rejected(end.Failure.Code, why)
	case semel.DispositionFailed:
		return semel.Failure(why)
	case semel.DispositionAborted:
		return semel.Aborted(why)
	}
	return semel.Unknown(why)
}

// end makes the end of an attempt durable. If the store doesn't say whether it is, the caller
// gets the error, and a goroutine tries again until the store says: otherwise the lease would
// be renewed forever. A crash meanwhile leaves a lease that runs out.
func (r *Runner) end(ctx context.Context, a *semel.Attempt, end semel.Ending) error {
	err := a.End(ctx, end) // not stopped if the caller hangs up
	if err != nil && Undecided(err) {
		r.report(a.Record().Door, err)
		r.endLater(context.WithoutCancel(ctx), a, end)
	}
	return err
}

// How long to pause before retrying an end with an unknown result.
const (
	minEndPause = 100 * time.Millisecond
	maxEndPause = 5 * time.Second
)

func (r *Runner) endLater(ctx context.Context, a *semel.Attempt, end semel.Ending) {
	// In a closed runner nobody asks again: the lease ends, and policy settles the attempt.
	r.background.Go(func() {
		for pause := minEndPause; ; pause = min(pause*2, maxEndPause) {
			select {
			case <-time.After(pause):
			case <-r.closing.Done():
				return
			}
			if !Undecided(a.End(ctx, end)) {
				return
			}
		}
	})
}

// Outcome returns what a delivery gets after [Runner.Do]: the recorded result, or an error with
// a code that [Lookup] explains. For Execute without an error it returns nothing: the handler
// has kept the caller's answer. If the result has no data, somebody settled the call as
// completed and gave none; data given by such a person needn't be in the form that your door
// uses for results.
func Outcome(ans *semel.Answer, err error) (semel.Result, error) {
	if err != nil || ans.Decision == semel.Execute {
		return semel.Result{}, err
	}
	if ans.Decision == semel.Replay && !ans.Record.Result.IsZero() && !ans.Record.Result.Tombstone {
		return ans.Record.Result, nil
	}
	return semel.Result{}, ans.Err()
}

// CodeOf returns the code of an error of [Runner.Do] or [Outcome]; [CodeInternal] if it has none.
func CodeOf(err error) semel.Code {
	if e, ok := errors.AsType[*semel.Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// EffectPrefix begins the names of the effects that doors keep in the ledger for themselves,
// such as the call of an upstream. The handler's answer is the answer to such an effect, so it
// isn't left open when the handler has returned.
const EffectPrefix = "semel"

// Effects returns the ledger of an attempt without the effects of doors.
func Effects(a *semel.Attempt) []store.EffectRecord {
	return slices.DeleteFunc(a.Effects(), func(ef store.EffectRecord) bool { return strings.HasPrefix(ef.Name, EffectPrefix) })
}

// Undecided reports whether an error of [Runner.Do] leaves open what happened, so that trying
// again may show it.
func Undecided(err error) bool {
	e, ok := errors.AsType[*semel.Error](err)
	return ok && (e.Code == semel.CodeUnknown || e.Code == semel.CodeStoreUnavailable)
}

func (r *Runner) report(door string, err error) { r.engine.Internal().Troubled(NotRecorded(door, err)) }

// Close waits until all outcomes are recorded that are still being retried, or ctx is done.
// Call it after you have shut down the server.
func (r *Runner) Close(ctx context.Context) error {
	defer r.stop()
	if r.background.Close(ctx) != nil {
		return fmt.Errorf("some outcomes are not recorded: %w", context.Cause(ctx))
	}
	return nil
}
