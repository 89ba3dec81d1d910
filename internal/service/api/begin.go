package api

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/prefer"
	"github.com/semelhq/semel/internal/wire"
)

// Name marks the records of calls that came over the API; see [semel.Call].Door.
const Name = "api"

const keyHeader = "Idempotency-Key"

type beginInput struct {
	Operation string          `path:"operation" maxLength:"256" example:"payments.charge"`
	Key       string          `header:"Idempotency-Key" doc:"The key, bare or in double quotes; or the member key of the body." example:"order-42"`
	Prefer    string          `header:"Prefer" doc:"wait=N waits up to N seconds for the outcome of a call in flight." example:"wait=10"`
	Holder    string          `header:"Semel-Holder" maxLength:"256" doc:"The holder: a random name for each delivery. If you repeat begin after its answer was lost, you get the same execution again."`
	Body      *wire.Beginning `required:"false"`
}

type beginOutput struct {
	Status   int
	Location string `header:"Location"`
	Replayed string `header:"Idempotency-Replayed"`
	Applied  string `header:"Preference-Applied"`
	Body     wire.Begun
}

func (b *builder) executions() {
	begin := about("begin", "executions", "POST /v1/operations/{operation}/executions", "Begin an execution, or get the outcome of the first one",
		"With 201 you own the call: do the work under the lease and end the execution. "+
			"With 200 the call ran before: record has its result, or its error. Any other answer means that nothing may be executed.")
	begin.DefaultStatus, begin.Metadata = http.StatusCreated, delivers
	begin.Responses = map[string]*huma.Response{
		"201": answer[wire.Begun](b, "You execute the call."),
		"200": answer[wire.Begun](b, "The call ran before."),
	}
	route(b, begin, NoRole, append(refusals(), semel.CodeForbidden, semel.CodeUnknownOperation, semel.CodeConfirmationRequired, semel.CodeConfirmationRefused), beginRoute)
	b.execution()
	b.effects()
	b.ends()
}

func refusals() []semel.Code {
	var codes []semel.Code
	for _, d := range semel.Decisions() {
		if code, refused := d.Code(); refused {
			codes = append(codes, code)
		}
	}
	return codes
}

func beginRoute(x *exchange, in *beginInput) (*beginOutput, error) {
	body := in.Body
	if body == nil {
		body = &wire.Beginning{}
	}
	key, present, fault := semelhttp.RequestKey(x.r.Header, keyHeader, semel.MaxKeyLen)
	switch {
	case fault != "":
		return nil, x.refused(x.api.invalid("header."+keyHeader, fault))
	case present && body.Key != "" && body.Key != key:
		return nil, x.refused(x.api.invalid("body.key", "the key in the body is not the one in the "+keyHeader+" header"))
	case present:
		body.Key = key
	}
	wait := prefer.Wait(x.r.Header)
	status, reply, err := x.begin(in.Operation, in.Holder, body, "body", wait)
	if err != nil {
		return nil, err
	}
	out := &beginOutput{Status: status, Location: x.api.recordPath(reply.Record.ID), Body: *reply}
	if status == http.StatusOK {
		out.Replayed = "true"
	}
	out.Applied = prefer.Applied(wait)
	return out, nil
}

// refused tells of a delivery that isn't even looked up, and returns why.
func (x *exchange) refused(p *problem) *problem {
	x.api.tellRefused(x.r, p)
	return p
}

func (a *API) recordPath(id string) string { return a.opts.BaseURL + "/v1/records/" + id }

// begin handles one delivery. path is where its members are in the body.
func (x *exchange) begin(operation, holder string, body *wire.Beginning, path string, wait time.Duration) (status int, reply *wire.Begun, err error) {
	a := x.api
	ctx := a.engine.Internal().Arrived(x.ctx(), Name, x.r.Header)
	var ans semel.Answer
	defer func() {
		e := door.EventOf(&ans)
		e.Status = status
		if e.ID.Operation = operation; err != nil {
			p := a.problemOf(err)
			e.Code, e.Status, e.Err = p.Code, p.Status, err
		}
		a.engine.Internal().Answered(ctx, e)
	}()
	call, err := x.call(operation, body, path)
	if err != nil {
		return 0, nil, err
	}
	call.Holder, call.Wait = holder, wait
	if op, ok := a.engine.Internal().Operation(operation); ok && (wait > 0 || op.InFlight == semel.WaitInFlight) {
		// A holder that asks again must not wait for itself.
		if at, err := a.engine.Internal().Reclaim(x.ctx(), call); err != nil || at != nil {
			return x.granted(at, err)
		}
	}
	if ans, err = a.engine.Begin(ctx, call); err != nil {
		if c := ans.Challenge; c != nil {
			p := a.problemOf(err)
			p.Record, p.Challenge = ans.Record.ID.Encode(), (*wire.Challenge)(c)
			return 0, nil, p
		}
		return 0, nil, err
	}
	if ans.Decision == semel.InFlight {
		if at, err := a.engine.Internal().Reclaim(x.ctx(), call); err != nil || at != nil {
			return x.granted(at, err)
		}
	}
	if ans.Decision == semel.Replay {
		return http.StatusOK, &wire.Begun{Decision: semel.Replay, Record: wire.RecordOf(ans.Record)}, nil
	}
	if ans.Decision != semel.Execute {
		return 0, nil, a.refusedBy(&ans)
	}
	// From here on the holder is elsewhere, and only it renews. If the process crashes
	// before the holder has the answer, the lease ends, and policy settles the attempt.
	ans.Attempt.Detach()
	if x.ctx().Err() != nil {
		// The caller is gone, so nobody executes, unless a named holder has asked again
		// meanwhile.
		if _, err := ans.Attempt.Release(x.ctx()); err != nil {
			return 0, nil, err
		}
		return 0, nil, x.ctx().Err()
	}
	return x.granted(ans.Attempt, nil)
}

func (x *exchange) call(operation string, body *wire.Beginning, path string) (call semel.Call, err error) {
	a := x.api
	switch {
	case body.Key == "":
		return call, a.invalid("header."+keyHeader, "the key is missing: send it in the "+keyHeader+" header or as the member key of the body")
	case a.opts.Reserved != nil && a.opts.Reserved(operation):
		return call, a.newProblem(semel.CodeUnknownOperation, "operation "+operation+" belongs to a route or another door of the service: send the call there")
	}
	call = semel.Call{
		Operation: operation, Key: body.Key, Payload: body.Payload, Door: Name,
		FirstSent: body.FirstSent, Sequence: body.Sequence, Attributes: body.Attributes, Confirm: body.Confirm, StepUp: body.StepUp,
	}
	x.name(&call)
	call.Fingerprint, err = a.fingerprint(body, path)
	return call, err
}

func (a *API) refusedBy(ans *semel.Answer) *problem {
	p := a.problemOf(ans.Err())
	p.Limit = ans.Limit
	switch p.Code {
	case semel.CodeSuperseded:
		p.LastSequence = ans.Record.Sequence
	case semel.CodeSequenceGap:
		p.ExpectedSequence = ans.Record.Sequence
	}
	if door.Names(ans) {
		p.Record = ans.Record.ID.Encode()
		p.set("Location", a.recordPath(p.Record))
	}
	return p
}

func (x *exchange) granted(at *semel.Attempt, err error) (status int, reply *wire.Begun, _ error) {
	if err != nil {
		return 0, nil, err
	}
	rec := at.Record()
	reply = &wire.Begun{Decision: semel.Execute, Record: wire.RecordOf(rec), Fence: rec.Fence, Attempt: rec.Attempt, LeaseUntil: rec.LeaseUntil}
	reply.Execution = reply.Record.ID + "." + strconv.FormatInt(rec.Fence, 10)
	reply.LeaseMS = rec.Policy.Lease.Milliseconds()
	reply.OnAbandoned = semel.HoldAbandoned
	if rec.Policy.MayRunAgain() {
		reply.OnAbandoned = semel.RetryAbandoned
	}
	if op, ok := x.api.engine.Internal().Operation(rec.ID.Operation); ok {
		reply.Financial = op.Financial
	}
	return http.StatusCreated, reply, nil
}

// fingerprint is the payload's, or the one that was sent instead.
func (a *API) fingerprint(body *wire.Beginning, path string) (fp semel.Fingerprint, err error) {
	switch {
	case body.Payload != nil && body.PayloadHash != "":
		return fp, a.invalid(path+".payload_hash", "send the payload or its hash, not both")
	case body.Payload != nil:
		if fp, err = semel.FingerprintJSON(body.Payload); err != nil {
			return fp, a.invalid(path+".payload", "the payload is not strict JSON")
		}
	case body.PayloadHash != "":
		if err := fp.UnmarshalText([]byte(body.PayloadHash)); err != nil || fp.String() != strings.ToLower(body.PayloadHash) {
			return fp, a.invalid(path+".payload_hash", "a hash is a scheme, a colon and 64 hexadecimal digits, such as 2:9f86…")
		}
	}
	return fp, nil
}
