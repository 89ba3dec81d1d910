package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
)

// onExecution is a request about an execution. It always has a body: without one
// the safe transport would give it a connection of its own.
func (c *Client) onExecution(execution, what string, body any) *request {
	return &request{
		method: http.MethodPost, url: c.base + "/v1/executions/" + url.PathEscape(execution) + what, body: body, repeatable: true,
	}
}

// Renew extends the lease of an execution to its full time, which it returns. Like
// all methods that take an execution by its name, it may be repeated, except where
// it says otherwise, and an error with [semel.CodeUnknown] means that no answer
// came: the same call again finds out.
//
// The lease runs from a moment after the call of Renew. [semel.ErrLeaseLost] means
// that the right to execute is gone.
func (c *Client) Renew(ctx context.Context, execution string) (time.Duration, error) {
	v, r, err := call[lease](ctx, c, c.onExecution(execution, "/renew", struct{}{}), semel.CodeUnknown)
	if err != nil {
		return 0, err
	}
	d := time.Duration(v.LeaseMS) * time.Millisecond
	if d <= 0 {
		return 0, invalidAnswer(r, "it has no lease", semel.CodeUnknown)
	}
	return d, nil
}

// StartEffect is [semel.Attempt.StartEffect]. It is not repeated after a lost
// answer: then a caller that has not made the call uses RestartEffect, once it is
// sure that no other goroutine has.
func (c *Client) StartEffect(ctx context.Context, execution, name string) (semel.EffectRecord, error) {
	return c.startEffect(ctx, execution, name, false)
}

// RestartEffect is [semel.Attempt.RestartEffect].
func (c *Client) RestartEffect(ctx context.Context, execution, name string) (semel.EffectRecord, error) {
	return c.startEffect(ctx, execution, name, true)
}

type starting struct {
	Name     string `json:"name"`
	Uncalled bool   `json:"uncalled,omitempty"`
}

func (c *Client) startEffect(ctx context.Context, execution, name string, uncalled bool) (semel.EffectRecord, error) {
	q := c.onExecution(execution, "/effects", starting{name, uncalled})
	q.repeatable = uncalled
	v, r, err := call[effect](ctx, c, q, semel.CodeUnknown)
	if e, ok := errors.AsType[*semel.Error](err); ok && e.Code == semel.CodeEffectUnknown {
		return semel.EffectRecord{}, semel.Unknown(e)
	}
	if err != nil {
		return semel.EffectRecord{}, err
	}
	ef := v.value()
	switch {
	case ef.Name != name || ef.Key == "":
		return semel.EffectRecord{}, invalidAnswer(r, "it is about another effect, or has no key", semel.CodeUnknown)
	case ef.State == semel.EffectStarted && r.status == http.StatusCreated:
	case ef.State == semel.EffectConfirmed && ef.Result.Tombstone:
		return ef, &semel.Error{Code: semel.CodeResultNotKept, Message: "effect " + name + " happened, but its result was not kept"}
	case ef.State == semel.EffectConfirmed:
	case ef.State == semel.EffectRefuted && ef.Failure != nil:
		return ef, semel.Rejected(ef.Failure.Code, errors.New(ef.Failure.Message))
	default:
		return ef, invalidAnswer(r, "the effect is in a state that is no answer", semel.CodeUnknown)
	}
	return ef, nil
}

// SettleEffect is [semel.Attempt.SettleEffect].
func (c *Client) SettleEffect(ctx context.Context, execution string, f semel.EffectFinding) error {
	if f.Result.Tombstone {
		return errTombstone()
	}
	_, _, err := call[effect](ctx, c, c.settling(execution, &f), semel.CodeUnknown)
	return err
}

func (c *Client) settling(execution string, f *semel.EffectFinding) *request {
	return c.onExecution(execution, "/effects/settle", &outcome{
		Name: f.Name, State: f.State, Bytes: sentResult(f.Result), Error: sentFailure(f.Failure),
	})
}

// Complete is [semel.Attempt.Complete]. It returns the record with its outcome.
func (c *Client) Complete(ctx context.Context, execution string, res semel.Result) (*semel.Record, error) {
	if res.Tombstone {
		return nil, errTombstone()
	}
	return c.end(ctx, c.ending(execution, semel.DispositionCompleted, semel.Failure{}, res, nil), nil)
}

// Reject is [semel.Attempt.Reject].
func (c *Client) Reject(ctx context.Context, execution string, f semel.Failure, res semel.Result) (*semel.Record, error) {
	if res.Tombstone {
		return nil, errTombstone()
	}
	return c.end(ctx, c.ending(execution, semel.DispositionRejected, f, res, nil), nil)
}

// Fail is [semel.Attempt.Fail].
func (c *Client) Fail(ctx context.Context, execution string, f semel.Failure, res semel.Result) (*semel.Record, error) {
	if res.Tombstone {
		return nil, errTombstone()
	}
	return c.end(ctx, c.ending(execution, semel.DispositionFailed, f, res, nil), nil)
}

// Abort is [semel.Attempt.Abort].
func (c *Client) Abort(ctx context.Context, execution string, f semel.Failure) (*semel.Record, error) {
	return c.end(ctx, c.ending(execution, semel.DispositionAborted, f, semel.Result{}, nil), nil)
}

// Hold is [semel.Attempt.Hold].
func (c *Client) Hold(ctx context.Context, execution, reason string) (*semel.Record, error) {
	return c.end(ctx, c.ending(execution, 0, semel.Failure{Message: reason}, semel.Result{}, nil), nil)
}

// ending is the request that ends an execution; a zero disposition holds it.
func (c *Client) ending(execution string, d semel.Disposition, f semel.Failure, res semel.Result, messages []semel.Message) *request {
	switch d {
	case semel.DispositionCompleted:
		return c.onExecution(execution, "/complete", &outcome{Bytes: sentResult(res), Messages: sentMessages(messages)})
	case semel.DispositionRejected:
		return c.onExecution(execution, "/reject", &outcome{Error: sentFailure(&f), Bytes: sentResult(res)})
	case semel.DispositionFailed:
		return c.onExecution(execution, "/fail", &outcome{Error: sentFailure(&f), Bytes: sentResult(res)})
	case semel.DispositionAborted:
		return c.onExecution(execution, "/abort", &outcome{Error: sentFailure(&f)})
	}
	reason := cut(f.Message)
	if reason == "" {
		reason = "the holder does not know the outcome"
	}
	return c.onExecution(execution, "/hold", &outcome{Reason: reason})
}

// end sends the end of an execution for as long as more says.
func (c *Client) end(ctx context.Context, q *request, more func() bool) (*semel.Record, error) {
	r, err := c.send(ctx, q, more)
	if err != nil {
		e := lostAnswer(err, semel.CodeUnknown)
		// Also where nothing of it was sent: the outcome exists and is not kept.
		e.Code, e.Message = semel.CodeUnknown, "the outcome is not recorded: "+e.Message
		return nil, e
	}
	if r.problem != nil {
		e := r.problem.err(r.retry)
		if e.Code == semel.CodeStoreUnavailable || e.Code == semel.CodeClosed || e.Code == "internal" {
			return nil, &semel.Error{Code: semel.CodeUnknown, Message: "the outcome is not recorded", Err: e}
		}
		return nil, e
	}
	rec, err := recordIn(r, semel.CodeUnknown)
	if err == nil && !strings.Contains(q.url, "/executions/"+rec.ID.Encode()+"."+strconv.FormatInt(rec.Fence, 10)+"/") {
		return nil, invalidAnswer(r, "it is about another execution", semel.CodeUnknown)
	}
	return rec, err
}

// recordIn reads an answer that is a record.
func recordIn(r *reply, code semel.Code) (*semel.Record, error) {
	v, err := decode[wrapped](r)
	if err != nil {
		return nil, lostAnswer(err, code)
	}
	rec, err := v.Record.value()
	if err != nil {
		return nil, invalidAnswer(r, err.Error(), code)
	}
	return rec, nil
}

// wrapped is an answer that is a record.
type wrapped struct {
	Record record `json:"record"`
}

func errTombstone() error {
	return &semel.Error{Code: semel.CodeUnsupported, Message: "the API can't be told of a result that is not kept"}
}
