package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/transport/semelhttp"
)

// Door marks the records of calls that came over the API; see [semel.Call].Door.
const Door = "api"

// keyHeader carries the key of a call.
const keyHeader = "Idempotency-Key"

// beginning is what a call is begun with.
type beginning struct {
	Key         string           `json:"key,omitempty" maxLength:"1024" doc:"The key, if not in the header." example:"order-42"`
	Payload     json.RawMessage  `json:"payload,omitempty" doc:"What the call is about. Only its fingerprint is kept, to refuse the key with another payload."`
	PayloadHash string           `json:"payload_hash,omitempty" maxLength:"128" doc:"The fingerprint itself, instead of the payload."`
	FirstSent   time.Time        `json:"first_sent,omitzero" doc:"When the caller first sent this call; see refuse_late of the operation."`
	Attributes  semel.Attributes `json:"attributes,omitempty" nullable:"false" doc:"Facts that are kept with a call that is new, such as a command_id or a correlation_id. They are no part of its identity."`
	Confirm     string           `json:"confirm,omitempty" maxLength:"256" doc:"The confirmation token."`
	StepUp      string           `json:"step_up,omitempty" maxLength:"1024" doc:"The further proof that a confirmation may need."`
}

// begun is the answer to a beginning.
type begun struct {
	Decision   string        `json:"decision" enum:"execute,replay"`
	Execution  string        `json:"execution,omitempty" doc:"Names the execution that the caller now holds."`
	Fence      int64         `json:"fence,omitempty" doc:"Pass it to resources that can refuse an older holder."`
	Attempt    int           `json:"attempt,omitempty"`
	Lease      int64         `json:"lease_ms,omitempty" doc:"How long the holder may be silent. Renew at a third of it."`
	LeaseUntil semel.Instant `json:"lease_until,omitzero" format:"date-time"`
	Record     record        `json:"record"`
}

type beginInput struct {
	Operation string     `path:"operation" maxLength:"256" example:"payments.charge"`
	Key       string     `header:"Idempotency-Key" doc:"The key, bare or in double quotes; or the member key of the body." example:"order-42"`
	Prefer    string     `header:"Prefer" doc:"wait=N waits up to N seconds for the outcome of a call in flight." example:"wait=10"`
	Holder    string     `header:"Semel-Holder" maxLength:"256" doc:"Names who executes, a random name for each delivery. A beginning that is repeated after its answer was lost gets the same execution again."`
	Body      *beginning `required:"false"`
}

type beginOutput struct {
	Status   int
	Location string `header:"Location"`
	Replayed string `header:"Idempotency-Replayed"`
	Applied  string `header:"Preference-Applied"`
	Body     begun
}

func (b *builder) executions() {
	route(b, huma.Operation{
		OperationID: "begin", Method: http.MethodPost, Path: "/v1/operations/{operation}/executions", DefaultStatus: http.StatusCreated, Tags: []string{"executions"},
		Summary: "Begin an execution, or get the outcome of the first one",
		Description: "With 201 the caller owns the call: it does the work under the lease and ends the execution. " +
			"With 200 the call ran before: record has its result, or its error. Any other answer means that nothing may be executed.",
		Responses: map[string]*huma.Response{
			"201": answer[begun](b, "The caller executes."),
			"200": answer[begun](b, "The call ran before."),
		},
	}, NoRole, []semel.Code{
		semel.CodeInFlight, semel.CodeHeld, semel.CodeConflict, semel.CodeOtherCaller, semel.CodeExpired, semel.CodeThrottled, semel.CodeOtherDoor, semel.CodeForbidden, semel.CodeUnknownOperation,
		semel.CodeConfirmationRequired, semel.CodeConfirmationRefused,
	}, beginRoute)
	b.execution()
	b.effects()
	b.ends()
}

func beginRoute(x *exchange, in *beginInput) (*beginOutput, error) {
	body := in.Body
	if body == nil {
		body = &beginning{}
	}
	key, present, fault := semelhttp.RequestKey(x.r.Header, keyHeader, semel.MaxKeyLen)
	switch {
	case fault != "":
		return nil, x.api.invalid("header."+keyHeader, fault)
	case present && body.Key != "" && body.Key != key:
		return nil, x.api.invalid("body.key", "the key in the body is not the one in the "+keyHeader+" header")
	case present:
		body.Key = key
	}
	wait := semelhttp.PreferredWait(x.r.Header)
	status, reply, err := x.begin(in.Operation, in.Holder, body, "body", wait)
	if err != nil {
		return nil, err
	}
	out := &beginOutput{Status: status, Location: x.api.recordPath(reply.Record.ID), Body: *reply}
	if status == http.StatusOK {
		out.Replayed = "true"
	}
	if wait > 0 {
		out.Applied = "wait=" + strconv.FormatInt(int64(wait/time.Second), 10)
	}
	return out, nil
}

func (a *API) recordPath(id string) string { return a.opts.BaseURL + "/v1/records/" + id }

// begin is one delivery. path is where its members stand in the body.
func (x *exchange) begin(operation, holder string, body *beginning, path string, wait time.Duration) (status int, reply *begun, err error) {
	a := x.api
	call := semel.Call{
		Operation: operation, Key: body.Key,
		Door: Door, Holder: holder, FirstSent: body.FirstSent, Wait: wait, Attributes: body.Attributes, Confirm: body.Confirm, StepUp: body.StepUp,
	}
	if call.Key == "" {
		return 0, nil, a.invalid("header."+keyHeader, "the key is missing: send it in the "+keyHeader+" header or as the member key of the body")
	}
	if a.opts.Reserved != nil && a.opts.Reserved(operation) {
		return 0, nil, a.newProblem(semel.CodeUnknownOperation, "operation "+operation+" can't be begun here")
	}
	if call.Fingerprint, err = a.fingerprint(body, path); err != nil {
		return 0, nil, err
	}
	x.name(&call)
	if op, ok := a.engine.Operation(operation); ok && (wait > 0 || op.InFlight == semel.WaitInFlight) {
		// A holder that asks again must not wait for itself.
		if at, err := a.engine.Reclaim(x.ctx(), call); err != nil || at != nil {
			return x.granted(at, err)
		}
	}
	ans, err := a.engine.Begin(x.ctx(), call)
	if err != nil {
		if c := ans.Challenge; c != nil {
			p := a.problemOf(err)
			p.Record, p.Challenge = ans.Record.ID.Encode(), &challenge{c.Token, c.ExpiresAt, c.StepUp}
			return 0, nil, p
		}
		return 0, nil, err
	}
	if ans.Decision == semel.InFlight {
		if at, err := a.engine.Reclaim(x.ctx(), call); err != nil || at != nil {
			return x.granted(at, err)
		}
	}
	if ans.Decision != semel.Execute && ans.Decision != semel.Replay {
		p := a.problemOf(ans.Err())
		switch ans.Decision {
		case semel.Conflict, semel.Expired, semel.OtherDoor: // it is not this call's record
		default:
			p.Record = ans.Record.ID.Encode()
			p.set("Location", a.recordPath(p.Record))
		}
		return 0, nil, p
	}
	if ans.Decision == semel.Replay {
		return http.StatusOK, &begun{Decision: string(semel.Replay), Record: a.viewOf(ans.Record)}, nil
	}
	// From here on the holder is elsewhere, and only it renews. A crash before
	// it knows leaves a lease that ends, and policy settles the attempt.
	ans.Attempt.Detach()
	if x.ctx().Err() != nil {
		// Nobody is there to be told, so nobody executes, unless a holder with a name
		// has asked again meanwhile.
		if _, err := ans.Attempt.Release(x.ctx()); err != nil {
			return 0, nil, err
		}
		return 0, nil, x.ctx().Err()
	}
	return x.granted(ans.Attempt, nil)
}

// granted tells the holder of its right, or why it could not be given.
func (x *exchange) granted(at *semel.Attempt, err error) (status int, reply *begun, _ error) {
	if err != nil {
		return 0, nil, err
	}
	rec := at.Record()
	reply = &begun{Decision: string(semel.Execute), Record: x.api.viewOf(rec), Fence: rec.Fence, Attempt: rec.Attempt, LeaseUntil: rec.LeaseUntil}
	reply.Execution = reply.Record.ID + "." + strconv.FormatInt(rec.Fence, 10)
	reply.Lease = rec.Policy.Lease.Milliseconds()
	return http.StatusCreated, reply, nil
}

// fingerprint is that of the payload, or the one that was sent instead.
func (a *API) fingerprint(body *beginning, path string) (fp semel.Fingerprint, err error) {
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
