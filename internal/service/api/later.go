package api

import (
	"context"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/internal/wire"
)

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

func (a *API) message(s *wire.Sending, path string) (semel.Message, error) {
	m := semel.Message{Name: s.Name, Destination: s.Destination, ContentType: s.ContentType, Order: s.Order, Payload: s.Payload}
	switch {
	case s.Payload != nil && s.PayloadBytes != nil:
		return m, a.invalid(path+".payload_base64", "a payload is JSON or bytes, not both")
	case s.PayloadBytes != nil:
		var err error
		if m.Payload, err = wire.FromBase64(s.PayloadBytes); err != nil {
			return m, a.invalid(path+".payload_base64", err.Error())
		}
	case s.Payload != nil && s.ContentType == "":
		m.ContentType = "application/json"
	}
	return m, nil
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
		nil, func(x *exchange, in *messageInput) (*reply[wire.RecordBody], error) {
			return x.settleMessage(in, dispatch.Replay)
		})
	changing(b, "discardMessage", "messages/{message}/discard", "Give a parked message up for good", "",
		nil, func(x *exchange, in *messageInput) (*reply[wire.RecordBody], error) {
			return x.settleMessage(in, dispatch.Discard)
		})
}

func compensateRecord(x *exchange, in *onRecord[wire.Reasoned]) (*reply[wire.RecordBody], error) {
	return x.change(in.ID, func(id semel.ID) (semel.Record, error) {
		return x.api.engine.Compensate(x.ctx(), id, x.caller.Principal, in.Body.Reason)
	})
}

func (x *exchange) settleMessage(in *messageInput,
	settle func(ctx context.Context, s dispatch.Settler, call semel.ID, id, reason string) (semel.Record, error),
) (*reply[wire.RecordBody], error) {
	return x.change(in.ID, func(id semel.ID) (semel.Record, error) {
		return settle(x.ctx(), x.api.engine.Internal(), id, in.Message, in.Body.Reason)
	})
}
