package client

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// onExecution returns a request about an execution. It always has a body: without one the safe
// transport would give it a connection of its own.
func (c *Client) onExecution(execution, what string, body any) *request {
	return &request{
		method: http.MethodPost, to: c.calls, path: "/v1/executions/" + url.PathEscape(execution) + what, body: body, repeatable: true, lost: semel.CodeUnknown,
	}
}

// Renew extends the lease of an execution to its full time, which it returns. You may repeat
// it, like all methods that take an execution's name, unless they say otherwise. An error with
// [semel.CodeUnknown] means that no answer came: repeat the call to find out.
//
// The lease begins some time after you called Renew. [semel.ErrLeaseLost] means that the right
// to execute is gone.
func (c *Client) Renew(ctx context.Context, execution string) (time.Duration, error) {
	v, r, err := call[wire.Renewed](ctx, c, c.onExecution(execution, "/renew", struct{}{}))
	if err != nil {
		return 0, err
	}
	d := time.Duration(v.LeaseMS) * time.Millisecond
	if d <= 0 {
		return 0, r.invalid("it has no lease")
	}
	return d, nil
}

// StartEffect is [semel.Attempt.StartEffect]. The client doesn't repeat it after a lost
// answer. If you haven't made the call then, use RestartEffect, once you are sure that no
// other goroutine has made it.
func (c *Client) StartEffect(ctx context.Context, execution, name string) (store.EffectRecord, error) {
	return c.startEffect(ctx, execution, name, false)
}

// RestartEffect is [semel.Attempt.RestartEffect].
func (c *Client) RestartEffect(ctx context.Context, execution, name string) (store.EffectRecord, error) {
	return c.startEffect(ctx, execution, name, true)
}

func (c *Client) startEffect(ctx context.Context, execution, name string, notCalled bool) (store.EffectRecord, error) {
	q := c.onExecution(execution, "/effects", wire.Intent{Name: name, NotCalled: notCalled})
	q.repeatable = notCalled
	v, r, err := call[wire.Effect](ctx, c, q)
	if e, ok := errors.AsType[*semel.Error](err); ok && e.Code == semel.CodeEffectUnknown {
		return store.EffectRecord{}, semel.Unknown(e)
	}
	if err != nil {
		return store.EffectRecord{}, err
	}
	ef, err := v.Value()
	switch {
	case err != nil:
		return store.EffectRecord{}, r.invalid(err.Error())
	case ef.Name != name || ef.Key == "":
		return store.EffectRecord{}, r.invalid("it is about another effect, or has no key")
	case ef.State == store.EffectStarted && r.status == http.StatusCreated:
	case ef.State == store.EffectConfirmed && ef.Result.Tombstone:
		return ef, &semel.Error{Code: semel.CodeResultNotKept, Message: "effect " + name + " happened, but its result was not kept"}
	case ef.State == store.EffectConfirmed:
	case ef.State == store.EffectRefuted && ef.Failure != nil:
		return ef, semel.Rejected(ef.Failure.Code, errors.New(ef.Failure.Message))
	default:
		return ef, r.invalid("the effect's state isn't a valid answer")
	}
	return ef, nil
}

// SettleEffect is [semel.Attempt.SettleEffect].
func (c *Client) SettleEffect(ctx context.Context, execution string, f store.EffectFinding) error {
	if f.Result.Tombstone {
		return errTombstone()
	}
	_, _, err := call[wire.Effect](ctx, c, c.settling(execution, &f))
	return err
}

func (c *Client) settling(execution string, f *store.EffectFinding) *request {
	return c.onExecution(execution, "/effects/settle", sentFinding(f))
}

// Complete is [semel.Attempt.Complete]. It returns the record with its outcome.
func (c *Client) Complete(ctx context.Context, execution string, res semel.Result) (*semel.Record, error) {
	return c.endAs(ctx, execution, semel.DispositionCompleted, store.Failure{}, res)
}

// Reject is [semel.Attempt.Reject].
func (c *Client) Reject(ctx context.Context, execution string, f store.Failure, res semel.Result) (*semel.Record, error) {
	return c.endAs(ctx, execution, semel.DispositionRejected, f, res)
}

// Fail is [semel.Attempt.Fail].
func (c *Client) Fail(ctx context.Context, execution string, f store.Failure, res semel.Result) (*semel.Record, error) {
	return c.endAs(ctx, execution, semel.DispositionFailed, f, res)
}

// Abort is [semel.Attempt.Abort].
func (c *Client) Abort(ctx context.Context, execution string, f store.Failure) (*semel.Record, error) {
	return c.endAs(ctx, execution, semel.DispositionAborted, f, semel.Result{})
}

// Hold is [semel.Attempt.Hold].
func (c *Client) Hold(ctx context.Context, execution, reason string) (*semel.Record, error) {
	return c.endAs(ctx, execution, 0, store.Failure{Message: reason}, semel.Result{})
}

// Abandon is [semel.Attempt.Abandon].
func (c *Client) Abandon(ctx context.Context, execution, reason string) (*semel.Record, error) {
	return c.endAs(ctx, execution, semel.DispositionAbandoned, store.Failure{Message: reason}, semel.Result{})
}

func (c *Client) endAs(ctx context.Context, execution string, d store.Disposition, f store.Failure, res semel.Result) (*semel.Record, error) {
	if res.Tombstone {
		return nil, errTombstone()
	}
	return c.end(ctx, c.ending(execution, d, f, res, nil))
}

// ending returns the request that ends an execution; a zero disposition holds it.
func (c *Client) ending(execution string, d store.Disposition, f store.Failure, res semel.Result, messages []semel.Message) *request {
	reason := func(otherwise string) *wire.Reasoned {
		return &wire.Reasoned{Reason: cmp.Or(cut(f.Message), otherwise)}
	}
	switch d {
	case semel.DispositionCompleted:
		return c.onExecution(execution, "/complete", &wire.Completing{Result: sentResult(res), Messages: sentMessages(messages)})
	case semel.DispositionRejected:
		return c.onExecution(execution, "/reject", &wire.Refusing{Error: *sentFailure(&f), Result: sentResult(res)})
	case semel.DispositionFailed:
		return c.onExecution(execution, "/fail", &wire.Refusing{Error: *sentFailure(&f), Result: sentResult(res)})
	case semel.DispositionAborted:
		return c.onExecution(execution, "/abort", &wire.Aborting{Error: sentFailure(&f)})
	case semel.DispositionAbandoned:
		return c.onExecution(execution, "/abandon", reason("the holder gave up"))
	}
	return c.onExecution(execution, "/hold", reason("the holder does not know the outcome"))
}

// end sends the end of an execution.
func (c *Client) end(ctx context.Context, q *request) (*semel.Record, error) {
	r, err := c.send(ctx, q)
	if err != nil {
		e := lostAnswer(err, q.lost)
		// This is unknown even if nothing was sent: the outcome exists, but isn't recorded.
		e.Code, e.Message = semel.CodeUnknown, "the outcome is not recorded: "+e.Message
		return nil, e
	}
	if r.problem != nil {
		e := r.refusal()
		if uncertain(e) { // the outcome exists, whatever became of this request
			return nil, &semel.Error{Code: semel.CodeUnknown, Message: "the outcome is not recorded", Err: e}
		}
		return nil, e
	}
	rec, err := recordIn(r)
	if err == nil && !strings.Contains(q.path, "/executions/"+rec.ID.Encode()+"."+strconv.FormatInt(rec.Fence, 10)+"/") {
		return nil, r.invalid("it is about another execution")
	}
	return rec, err
}

// recordIn reads a record from an answer.
func recordIn(r *reply) (*semel.Record, error) {
	v, err := decode[wire.RecordBody](r)
	if err != nil {
		return nil, err
	}
	rec, err := v.Record.Value()
	if err != nil {
		return nil, r.invalid(err.Error())
	}
	return rec, nil
}

func errTombstone() error {
	return &semel.Error{Code: semel.CodeUnsupported, Message: "the API doesn't take a result that isn't kept"}
}
