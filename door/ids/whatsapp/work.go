package whatsapp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/door/inbox"
)

// Refusal is an error of [Ingress.Work] that another try wouldn't change. Park the message.
type Refusal = inbox.Refusal

// Later is an error of [Ingress.Work] that says when to try again. After any other error
// the caller chooses.
type Later = inbox.Later

// ErrNoCommand is a mapper's error for a message that isn't a command.
var ErrNoCommand = errors.New("whatsapp: the message is no command")

// Work processes an accepted message: payload is the content of a message to [Destination]. It
// returns nil once that is done. After any error except a [Refusal], call it again; it then
// finds the outcome of an executed command.
func (in *Ingress) Work(ctx context.Context, payload []byte) error {
	return in.inboxes[MessageOperation].Work(ctx, payload)
}

func (in *Ingress) handle(ctx context.Context, it *inbox.Item[head]) error {
	if it.Head.Mistake != "" {
		return inbox.Refuse(it.Head.Mistake, "it can't be read as WhatsApp writes it")
	}
	if it.Head.Operation == StatusOperation {
		return in.handleStatus(ctx, it)
	}
	m, err := messageOf(it)
	if err != nil {
		return &Refusal{Code: codeMalformed, Err: err}
	}
	c, err := in.opts.Map.Map(ctx, m)
	if errors.Is(err, ErrNoCommand) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("whatsapp: map a message: %w", err)
	}
	if err := bind(&c, m); err != nil {
		return &Refusal{Code: "mapper", Err: err}
	}
	caller := ids.Caller{Tenant: m.TenantID, Principal: m.From}
	if in.opts.Rights != nil {
		if caller.Rights, err = in.opts.Rights(ctx, m); err != nil {
			return fmt.Errorf("whatsapp: rights of a sender: %w", err)
		}
	}
	// A crash in here leaves the message due. The next try finds the command where
	// this one left it, with its outcome if it has one.
	r, err := in.opts.Gateway.Execute(ctx, caller, c)
	return in.answer(ctx, m, r, err)
}

func (in *Ingress) handleStatus(ctx context.Context, it *inbox.Item[head]) error {
	s, err := statusOf(it)
	if err != nil {
		return &Refusal{Code: codeMalformed, Err: err}
	}
	if in.opts.Status == nil {
		return nil // a node with other options accepted it
	}
	return in.opts.Status(ctx, s)
}

// bind says who sends the command, and in which message. The webhook has verified both, so the
// mapper can't decide them.
func bind(c *ids.Command, m *Message) error {
	if c.TenantID != "" && c.TenantID != m.TenantID || c.ActorID != "" && c.ActorID != m.From {
		return errors.New("the mapper names another tenant or actor than the message has")
	}
	c.TenantID, c.ActorID, c.SentAt, c.ReceivedAt = m.TenantID, m.From, m.SentAt, m.ReceivedAt
	trace := ids.Trace{}
	maps.Copy(trace, c.Trace)
	trace[ids.TraceMessageID], trace[ids.TracePhoneNumberID] = m.ID, m.PhoneNumberID
	c.Trace = trace
	return nil
}

// answer replies to the sender with the outcome of their command, once it is settled.
func (in *Ingress) answer(ctx context.Context, m *Message, r *ids.Response, err error) error {
	if err == nil {
		// It has yet to be ended: by whoever executes it now, by an operator, or by another delivery. The
		// message stays due until then, so that a node that dies leaves no command behind.
		if r.Status == ids.StatusProcessing || r.Status == ids.StatusFailed && (r.Reason == string(semel.CodeAborted) || r.Reason == "abandoned") {
			return &Later{After: max(r.RetryAfter, time.Second), Err: errors.New("whatsapp: the command is not settled: " + string(r.Status) + " " + r.Reason)}
		}
		return in.reply(ctx, m, r, nil)
	}
	if !final(err) {
		if e, ok := errors.AsType[*semel.Error](err); ok && e.RetryAfter > 0 {
			return &Later{After: e.RetryAfter, Err: err}
		}
		return err
	}
	if err := in.reply(ctx, m, nil, err); err != nil {
		return err
	}
	if wrong, ok := errors.AsType[*ids.Error](err); ok {
		return &Refusal{Code: inbox.Code(wrong.Reason), Err: err} // the mapper's fault: somebody should see it
	}
	return nil
}

func (in *Ingress) reply(ctx context.Context, m *Message, r *ids.Response, refused error) error {
	if in.opts.Reply == nil {
		return nil
	}
	if err := in.opts.Reply(ctx, m, r, refused); err != nil {
		return fmt.Errorf("whatsapp: reply: %w", err)
	}
	return nil
}

// final reports whether an error says that nothing was executed, and that the same message
// would get the same error again.
func final(err error) bool {
	if _, wrong := errors.AsType[*ids.Error](err); wrong {
		return true
	}
	e, ok := errors.AsType[*semel.Error](err)
	return ok && slices.Contains([]semel.Code{semel.CodeForbidden, semel.CodeConfirmationRefused, semel.CodeTooLate, semel.CodeInvalidCall}, e.Code)
}
