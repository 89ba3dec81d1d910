package api

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

var attached = []semel.Code{semel.CodeNotFound, semel.CodeForbidden, semel.CodeLeaseLost, semel.CodeAlreadyEnded, semel.CodeUnknown}

// onExecution is a request about an execution; it may have no body if B is a pointer.
type onExecution[B any] struct {
	Execution string `path:"execution" maxLength:"8192" doc:"The name of the execution, from the answer to begin."`
	Body      B
}

type executionInput struct {
	Execution string `path:"execution" maxLength:"8192" doc:"The name of the execution, from the answer to begin."`
}

// attach returns the attempt of an execution. For all but whoever began it, it doesn't exist.
func (x *exchange) attach(execution string) (*semel.Attempt, error) {
	missing := x.api.newProblem(semel.CodeNotFound, "there is no such execution, or it is not yours")
	dot := strings.LastIndexByte(execution, '.')
	if dot < 0 {
		return nil, missing
	}
	id, err := store.DecodeID(execution[:dot])
	if err != nil || !x.own(id) {
		return nil, missing
	}
	if a := x.api; a.opts.Reserved != nil && a.opts.Reserved(id.Operation) {
		return nil, missing
	}
	fence, err := strconv.ParseInt(execution[dot+1:], 10, 64)
	if err != nil || fence <= 0 || strconv.FormatInt(fence, 10) != execution[dot+1:] {
		return nil, missing
	}
	at, err := x.api.engine.Internal().Attach(x.ctx(), id, fence)
	switch {
	case errors.Is(err, semel.ErrNotFound):
		return nil, missing
	case err != nil:
		return nil, err
	}
	// Only the door that began a call may end it, because only that door knows the form
	// of its answers. If keys are shared, or calls bound to a credential, the attempt still
	// belongs to whoever began it. The attempt of a read-only call isn't recorded, and belongs
	// to anyone.
	call, rec := semel.Call{Operation: id.Operation, Key: id.Key}, at.Record()
	x.name(&call)
	if op, ok := x.api.engine.Internal().Operation(id.Operation); ok && op.Class == semel.ReadOnly {
		return at, nil
	}
	if rec.Door != Name || rec.Principal != call.Principal || rec.BoundTo != call.BoundTo {
		return nil, missing
	}
	return at, nil
}

// onAttempt runs f with the attempt. The holder may send two requests at once, or one
// twice. The slower one then finds the record changed, and looks again whether the other
// one did the same.
func (x *exchange) onAttempt(execution string, f ending) (*semel.Attempt, error) {
	for first := true; ; first = false {
		at, err := x.attach(execution)
		if err != nil {
			return nil, err
		}
		if err = f(at); err == nil || !first || !errors.Is(err, semel.ErrLeaseLost) {
			return at, err
		}
	}
}

func (b *builder) execution() {
	route(b, about("renew", "executions", "POST /v1/executions/{execution}/renew", "Extend the lease to its full time from now",
		"If you get lease_lost, stop at once: another holder may be executing."), NoRole, attached, func(x *exchange, in *executionInput) (*reply[wire.Renewed], error) {
		at, err := x.onAttempt(in.Execution, func(at *semel.Attempt) error { return at.Renew(x.ctx()) })
		if err != nil {
			return nil, err
		}
		rec := at.Record()
		return &reply[wire.Renewed]{wire.Renewed{LeaseMS: rec.LeaseUntil.Sub(rec.UpdatedAt).Milliseconds(), LeaseUntil: rec.LeaseUntil}}, nil
	})
}

// finding converts a finding for the engine. path is where its members are.
func (a *API) finding(f *wire.Finding, path string) (ef store.EffectFinding, err error) {
	ef = store.EffectFinding{Name: f.Name, State: f.State, Failure: (*store.Failure)(f.Error)}
	switch {
	case ef.State == store.EffectConfirmed && f.Error != nil:
		return ef, a.invalid(path+".error", "a confirmed effect has no error")
	case ef.State == store.EffectRefuted && (f.JSON != nil || f.Bytes != nil):
		return ef, a.invalid(path+".result", "a refuted effect has no result")
	}
	ef.Result, err = a.result(f.Result, path)
	return ef, err
}

type effectOutput struct {
	Status int
	Body   wire.Effect
}

func (b *builder) effects() {
	start := about("startEffect", "executions", "POST /v1/executions/{execution}/effects", "Make the intent to call a provider durable, or get what the call returned",
		"With 201 call the provider, with the effect's key, and settle the effect. "+
			"With 200 it was called before: use its result, or its error.")
	start.DefaultStatus = http.StatusCreated
	start.Responses = map[string]*huma.Response{
		"201": answer[wire.Effect](b, "Started: make the call."),
		"200": answer[wire.Effect](b, "Confirmed or refuted before."),
	}
	route(b, start, NoRole, append([]semel.Code{semel.CodeEffectUnknown, semel.CodeResultNotKept}, attached...), startEffect)
	route(b, about("settleEffect", "executions", "POST /v1/executions/{execution}/effects/settle", "Say what happened to a started effect",
		"Saying the same again is harmless."), NoRole, attached, settleEffect)
}

func startEffect(x *exchange, in *onExecution[wire.Intent]) (*effectOutput, error) {
	var ef store.EffectRecord
	_, err := x.onAttempt(in.Execution, func(at *semel.Attempt) (err error) {
		if in.Body.NotCalled {
			ef, err = at.RestartEffect(x.ctx(), in.Body.Name)
		} else {
			ef, err = at.StartEffect(x.ctx(), in.Body.Name)
		}
		return err
	})
	switch {
	case ef.State == store.EffectRefuted && ef.Failure != nil:
		// The engine returns the provider's refusal as an error; here it is the answer.
	case err != nil:
		return nil, err
	case ef.State == store.EffectStarted:
		return &effectOutput{http.StatusCreated, wire.EffectOf(&ef)}, nil
	}
	return &effectOutput{http.StatusOK, wire.EffectOf(&ef)}, nil
}

func settleEffect(x *exchange, in *onExecution[wire.Finding]) (*effectOutput, error) {
	f, err := x.api.finding(&in.Body, "body")
	if err != nil {
		return nil, err
	}
	at, err := x.onAttempt(in.Execution, func(at *semel.Attempt) error { return at.SettleEffect(x.ctx(), f) })
	if err != nil {
		return nil, err
	}
	for _, ef := range at.Effects() {
		if ef.Name == f.Name {
			return &effectOutput{http.StatusOK, wire.EffectOf(&ef)}, nil
		}
	}
	return nil, x.api.newProblem(door.CodeInternal, "")
}

type batchInput struct {
	Holder string `header:"Semel-Holder" maxLength:"240" doc:"The holder: a random name for each batch; see begin."`
	Body   wire.Batch
}

func (b *builder) batch() {
	op := about("batch", "executions", "POST /v1/batch", "Begin and complete many executions in one request",
		"Items run at the same time, in no promised order, and each is answered on its own, in the order of the request. "+
			"Repeating a batch is as harmless as repeating its items.")
	op.Metadata, op.MaxBodyBytes = delivers, b.api.opts.bounds.batch
	route(b, op, NoRole, nil, runBatch)
}

func runBatch(x *exchange, in *batchInput) (*reply[wire.BatchReply], error) {
	out := &reply[wire.BatchReply]{}
	out.Body.Items = make([]wire.BatchAnswer, len(in.Body.Items))
	var all sync.WaitGroup
	for i := range in.Body.Items {
		all.Go(func() {
			holder := in.Holder
			if holder != "" {
				holder += "." + strconv.Itoa(i)
			}
			status, body, err := x.batchItem(&in.Body.Items[i], holder, "body.items["+strconv.Itoa(i)+"]")
			if err != nil {
				p := x.api.problemOf(err)
				status, body = p.Status, p
			}
			var text bytes.Buffer
			if err := strictJSON.Marshal(&text, body); err != nil {
				panic(err) // a record or a problem always has a JSON form
			}
			out.Body.Items[i] = wire.BatchAnswer{Status: status, Body: text.Bytes()}
		})
	}
	all.Wait()
	return out, nil
}

func (x *exchange) batchItem(item *wire.BatchItem, holder, path string) (status int, body any, err error) {
	switch {
	case (item.Begin == nil) == (item.Complete == nil):
		return 0, nil, x.refused(x.api.invalid(path, "an item has either begin or complete"))
	case item.Begin != nil:
		in := item.Begin
		in.Beginning.Key = in.Key
		return flat(x.begin(in.Operation, holder, &in.Beginning, path+".begin", 0))
	}
	f, err := x.complete(&wire.Completing{Result: item.Complete.Result}, path+".complete")
	if err != nil {
		return 0, nil, err
	}
	reply, err := x.end(item.Complete.Execution, f)
	return http.StatusOK, reply, err
}

func flat(status int, reply *wire.Begun, err error) (int, any, error) { return status, reply, err }
