package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
)

// outgoing is a message of a completed call as it is shown. Its payload is not: it
// may be large, and is for its receiver.
type outgoing struct {
	ID          string        `json:"id" doc:"What the receiver deduplicates by."`
	Name        string        `json:"name"`
	Destination string        `json:"destination"`
	ContentType string        `json:"content_type,omitempty"`
	Bytes       int           `json:"payload_bytes"`
	Order       string        `json:"order,omitempty"`
	State       string        `json:"state" enum:"pending,delivered,parked,discarded"`
	Tries       int           `json:"tries" doc:"Deliveries that did not succeed since the message was made or replayed."`
	NextAt      semel.Instant `json:"next_at,omitzero" format:"date-time"`
	CreatedAt   semel.Instant `json:"created_at" format:"date-time"`
	SettledAt   semel.Instant `json:"settled_at,omitzero" format:"date-time"`
	Error       *failure      `json:"error,omitempty" doc:"Why the last delivery did not succeed, or with the code replayed or discarded, an operator's reason."`
}

// confirmation is how a call was, or is to be, confirmed.
type confirmation struct {
	Principal   string        `json:"principal,omitempty" doc:"Who was asked."`
	Tries       int           `json:"tries" doc:"Wrong tokens and proofs."`
	ConfirmedAt semel.Instant `json:"confirmed_at,omitzero" format:"date-time"`
}

// compensation is the call that undoes a completed one.
type compensation struct {
	Record    string        `json:"record" doc:"The record of the compensating call."`
	Operation string        `json:"operation"`
	State     string        `json:"state" enum:"started,done,failed"`
	Reason    string        `json:"reason,omitempty"`
	StartedAt semel.Instant `json:"started_at" format:"date-time"`
	SettledAt semel.Instant `json:"settled_at,omitzero" format:"date-time"`
	Error     *failure      `json:"error,omitempty"`
}

// challenge is what confirms a call.
type challenge struct {
	Token     string    `json:"token" doc:"To be sent as confirm, with the same call. It is shown once."`
	ExpiresAt time.Time `json:"expires_at"`
	StepUp    bool      `json:"step_up,omitempty" doc:"A further proof is needed, as step_up."`
}

// showLater adds what most records don't have.
func (v *record) showLater(rec *semel.Record) {
	v.Attributes = rec.Attributes
	if c := rec.Confirmation; c != nil {
		v.Confirmation = &confirmation{c.Principal, c.Tries, c.ConfirmedAt}
	}
	for i := range rec.Outbox {
		m := &rec.Outbox[i]
		v.Messages = append(v.Messages, outgoing{
			ID: m.ID, Name: m.Name, Destination: m.Destination, ContentType: m.ContentType, Bytes: len(m.Payload), Order: m.Order, State: string(m.State),
			Tries: m.Tries, NextAt: m.NextAt, CreatedAt: m.CreatedAt, SettledAt: m.SettledAt, Error: failureOf(m.Failure),
		})
	}
	if c := rec.Compensation; c != nil {
		v.Compensation = &compensation{
			c.ID(rec.ID.Tenant).Encode(), c.Operation, string(c.State), c.Reason, c.StartedAt, c.SettledAt, failureOf(c.Failure),
		}
	}
}

// completing is what an execution is completed with.
type completing struct {
	Result      json.RawMessage `json:"result,omitempty" doc:"What duplicates get. White space is not kept; use result_base64 for bytes that must stay as they are."`
	ResultBytes *string         `json:"result_base64,omitempty" doc:"The same as bytes, in base64."`
	Messages    []sending       `json:"messages,omitempty" maxItems:"100" nullable:"false" doc:"What the call sends. They become durable together with the result, and are delivered at least once."`
}

// sending is a message that a call sends.
type sending struct {
	Name         string          `json:"name" minLength:"1" maxLength:"256" doc:"Unique within the call."`
	Destination  string          `json:"destination" minLength:"1" maxLength:"256"`
	ContentType  string          `json:"content_type,omitempty" maxLength:"256"`
	Payload      json.RawMessage `json:"payload,omitempty"`
	PayloadBytes *string         `json:"payload_base64,omitempty" doc:"The same as bytes, in base64."`
	Order        string          `json:"order,omitempty" maxLength:"256" doc:"Messages of one destination with the same word are delivered in order."`
}

func (x *exchange) completeWith(execution string, body completing) (*recordBody, error) {
	res, err := x.api.result(given{body.Result, body.ResultBytes}, "body")
	if err != nil {
		return nil, err
	}
	messages := make([]semel.Message, 0, len(body.Messages))
	for i, s := range body.Messages {
		m, err := x.api.message(s, "body.messages["+strconv.Itoa(i)+"]")
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return x.end(execution, func(at *semel.Attempt) error {
		for _, m := range messages {
			if err := x.api.maySend(at.ID(), m.Destination); err != nil {
				return err
			}
			// An attempt that has ended has its messages, or is told so below.
			if err := at.Send(m); err != nil && !errors.Is(err, &semel.Error{Code: semel.CodeAlreadyEnded}) {
				return err
			}
		}
		return at.Complete(x.ctx(), res)
	})
}

// maySend refuses a message before anything of the call is written.
func (a *API) maySend(call semel.ID, destination string) error {
	if a.opts.MaySend == nil || a.opts.MaySend(call, destination) {
		return nil
	}
	return a.newProblem(semel.CodeForbidden, "calls of this operation and tenant may not send to the destination "+destination)
}

func (a *API) message(s sending, path string) (semel.Message, error) {
	m := semel.Message{Name: s.Name, Destination: s.Destination, ContentType: s.ContentType, Order: s.Order, Payload: s.Payload}
	switch {
	case s.Payload != nil && s.PayloadBytes != nil:
		return m, a.invalid(path+".payload_base64", "a payload is JSON or bytes, not both")
	case s.PayloadBytes != nil:
		data, err := base64.StdEncoding.DecodeString(*s.PayloadBytes)
		if err != nil {
			return m, a.invalid(path+".payload_base64", "the text is not base64 (RFC 4648, with padding)")
		}
		m.Payload = data
	case s.Payload != nil && s.ContentType == "":
		m.ContentType = "application/json"
	}
	return m, nil
}

type messageInput struct {
	ID      string `path:"id" maxLength:"8192" doc:"The record's id."`
	Message string `path:"message" maxLength:"256" doc:"The message's id."`
	Body    reasoned
}

// laterRoutes are what operators do with records that have completed.
func (b *builder) laterRoutes(settled []semel.Code) {
	route(b, huma.Operation{
		OperationID: "compensateRecord", Method: http.MethodPost, Path: "/v1/records/{id}/compensate", Tags: []string{"records"},
		Summary:     "Undo a completed call, once",
		Description: "Runs the compensation that the operation declares, as a call of its own that is linked to this one. Asking again answers with what there is.",
	}, Operator, append([]semel.Code{semel.CodeUnsupported, semel.CodeHeld, semel.CodeInFlight, semel.CodeFailed, semel.CodeRejected}, settled...), compensateRecord)
	route(b, huma.Operation{
		OperationID: "replayMessage", Method: http.MethodPost, Path: "/v1/records/{id}/messages/{message}/replay", Tags: []string{"records"},
		Summary:     "Deliver a parked message again",
		Description: "It is delivered under its old id, as if it had not been tried. The reason is the message's error until its next try.",
	}, Operator, settled, func(x *exchange, in *messageInput) (*recordOutput, error) {
		return x.settleMessage(in, dispatch.Replay)
	})
	route(b, huma.Operation{
		OperationID: "discardMessage", Method: http.MethodPost, Path: "/v1/records/{id}/messages/{message}/discard", Tags: []string{"records"},
		Summary: "Give a parked message up for good",
	}, Operator, settled, func(x *exchange, in *messageInput) (*recordOutput, error) {
		return x.settleMessage(in, dispatch.Discard)
	})
}

func compensateRecord(x *exchange, in *reasonInput) (*recordOutput, error) {
	id, err := x.overseen(in.ID)
	if err != nil {
		return nil, err
	}
	rec, err := x.api.engine.Compensate(x.ctx(), id, x.caller.Principal, in.Body.Reason)
	switch {
	case errors.Is(err, semel.ErrNotFound):
		return nil, x.noRecord()
	case err != nil:
		return nil, err
	}
	return &recordOutput{recordBody{x.api.viewOf(&rec)}}, nil
}

// settleMessage lets an operator decide about a message, by [dispatch.Replay] or
// [dispatch.Discard].
func (x *exchange) settleMessage(in *messageInput,
	settle func(ctx context.Context, s dispatch.Settler, call semel.ID, id, reason string) (semel.Record, error),
) (*recordOutput, error) {
	id, err := x.overseen(in.ID)
	if err != nil {
		return nil, err
	}
	rec, err := settle(x.ctx(), x.api.engine, id, in.Message, in.Body.Reason)
	switch {
	case errors.Is(err, semel.ErrNotFound):
		return nil, x.noRecord()
	case err != nil:
		return nil, err
	}
	return &recordOutput{recordBody{x.api.viewOf(&rec)}}, nil
}
