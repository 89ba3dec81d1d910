package api

import (
	"context"
	"errors"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

type ending = func(at *semel.Attempt) error

// end registers one way to end an execution, which read takes from a body.
func end[B any](b *builder, name, summary, description string, read func(x *exchange, body B) (ending, error)) {
	route(b, about(name, "executions", "POST /v1/executions/{execution}/"+name, summary,
		description+" Repeating it is harmless; another end afterwards is already_ended."), NoRole, attached, func(x *exchange, in *onExecution[B]) (*reply[wire.RecordBody], error) {
		f, err := read(x, in.Body)
		if err != nil {
			return nil, err
		}
		return replied(x.end(in.Execution, f))
	})
}

func (b *builder) ends() {
	end(b, "complete", "End the execution with its result", "Every duplicate gets the result.",
		func(x *exchange, body *wire.Completing) (ending, error) {
			if body == nil {
				body = &wire.Completing{}
			}
			return x.complete(body, "body")
		})
	end(b, "reject", "End the execution as refused for good", "Every duplicate gets the refusal, whatever the operation's on_failure.",
		func(x *exchange, body wire.Refusing) (ending, error) { return x.refuse(&body, (*semel.Attempt).Reject) })
	end(b, "fail", "End the execution as failed", "The operation's on_failure says whether a duplicate gets the failure or runs again. If an effect may have happened, hold instead.",
		func(x *exchange, body wire.Refusing) (ending, error) { return x.refuse(&body, (*semel.Attempt).Fail) })
	end(b, "abort", "End the execution with proof that nothing happened", "The next delivery runs again.",
		func(x *exchange, body *wire.Aborting) (ending, error) {
			var f store.Failure
			if body != nil && body.Error != nil {
				f = store.Failure(*body.Error)
			}
			return func(at *semel.Attempt) error { return at.Abort(x.ctx(), f) }, nil
		})
	end(b, "hold", "Give the execution up with an unknown outcome", "Nobody runs the call until it is settled.",
		func(x *exchange, body wire.Reasoned) (ending, error) {
			return func(at *semel.Attempt) error { return at.Hold(x.ctx(), body.Reason) }, nil
		})
	end(b, "abandon", "Give the execution up as if its holder had died", "The next delivery runs again, without waiting for the lease to end, where on_abandoned of the answer to begin is retry and no effect was started that has no result. Otherwise the call is held.",
		func(x *exchange, body wire.Reasoned) (ending, error) {
			return func(at *semel.Attempt) error { return at.Abandon(x.ctx(), body.Reason) }, nil
		})
}

// complete reads a result, and the messages to send with it. path is where their members are.
func (x *exchange) complete(body *wire.Completing, path string) (ending, error) {
	res, err := x.api.result(body.Result, path)
	if err != nil {
		return nil, err
	}
	messages, err := x.api.messages(body.Messages, path)
	if err != nil {
		return nil, err
	}
	return func(at *semel.Attempt) error {
		for _, m := range messages {
			if err := x.api.maySend(at.ID(), m.Destination); err != nil {
				return err
			}
			// An attempt that has ended has its messages already, or Complete returns the
			// error.
			if err := at.Send(m); err != nil && !errors.Is(err, &semel.Error{Code: semel.CodeAlreadyEnded}) {
				return err
			}
		}
		return at.Complete(x.ctx(), res)
	}, nil
}

func (x *exchange) refuse(body *wire.Refusing, f func(*semel.Attempt, context.Context, store.Failure, semel.Result) error) (ending, error) {
	res, err := x.api.result(body.Result, "body")
	return func(at *semel.Attempt) error { return f(at, x.ctx(), store.Failure(body.Error), res) }, err
}

// end ends the attempt. The end is durable before anyone gets an answer; see
// [semel.Attempt.Complete] for what a crash leaves behind.
func (x *exchange) end(execution string, f ending) (*wire.RecordBody, error) {
	at, err := x.onAttempt(execution, f)
	if err != nil {
		return nil, err
	}
	return &wire.RecordBody{Record: wire.RecordOf(at.Record())}, nil
}

// maySend refuses a message before anything is written about the call.
func (a *API) maySend(call semel.ID, destination string) error {
	if a.opts.MaySend == nil || a.opts.MaySend(call, destination) {
		return nil
	}
	return a.newProblem(semel.CodeForbidden, "calls of this operation and tenant may not send to the destination "+destination)
}

// messages converts messages for the engine. path is where the list is.
func (a *API) messages(list []wire.Sending, path string) ([]semel.Message, error) {
	var messages []semel.Message
	for i := range list {
		m, err := a.message(&list[i], path+".messages["+strconv.Itoa(i)+"]")
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

func (a *API) message(s *wire.Sending, path string) (m semel.Message, err error) {
	m = semel.Message{Name: s.Name, Destination: s.Destination, ContentType: s.ContentType, Order: s.Order}
	if s.Payload != nil && s.ContentType == "" {
		m.ContentType = "application/json"
	}
	m.Payload, err = a.given(s.Payload, s.PayloadBytes, path+".payload_base64", "a payload is JSON or bytes, not both")
	return m, err
}

type messageInput struct {
	ID      string `path:"id" maxLength:"8192" doc:"The record's id."`
	Message string `path:"message" maxLength:"256" doc:"The message's id."`
	Body    wire.Reasoned
}

func (b *builder) laterRoutes() {
	changing(b, "compensateRecord", "compensate", "Undo a completed call, once",
		"Runs the compensation that the operation declares, as a call of its own that is linked to this one. Asking again returns the record as it is then.",
		[]semel.Code{semel.CodeUnsupported, semel.CodeHeld, semel.CodeInFlight, semel.CodeFailed, semel.CodeRejected}, compensateRecord)
	changing(b, "replayMessage", "messages/{message}/replay", "Deliver a parked message again",
		"It is delivered under its old id, as if it had not been tried. The reason is the message's error until its next try.",
		nil, settleMessage(dispatch.Replay))
	changing(b, "discardMessage", "messages/{message}/discard", "Give a parked message up for good", "",
		nil, settleMessage(dispatch.Discard))
}

func compensateRecord(x *exchange, in *onRecord[wire.Reasoned]) (*reply[wire.RecordBody], error) {
	return x.change(in.ID, func(id semel.ID) (semel.Record, error) {
		return x.api.engine.Compensate(x.ctx(), id, x.caller.Principal, in.Body.Reason)
	})
}

func settleMessage(settle func(ctx context.Context, s dispatch.Settler, call semel.ID, id, reason string) (semel.Record, error)) func(x *exchange, in *messageInput) (*reply[wire.RecordBody], error) {
	return func(x *exchange, in *messageInput) (*reply[wire.RecordBody], error) {
		return x.change(in.ID, func(id semel.ID) (semel.Record, error) {
			return settle(x.ctx(), x.api.engine.Internal(), id, in.Message, in.Body.Reason)
		})
	}
}
