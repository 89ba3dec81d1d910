package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/protocol/ids"
	"github.com/semelhq/semel/protocol/ids/whatsapp"
	"github.com/semelhq/semel/server/config"
)

// How messages from WhatsApp are worked on. Mapper, handlers and replies have
// timeouts of their own, so workTimeout only ends what none of them bounds.
const (
	workTimeout    = 15 * time.Minute
	workAtOnce     = 16
	workLease      = 10 * time.Second
	workMinBackoff = time.Second
	workMaxBackoff = 5 * time.Minute
	workMaxTries   = 1 << 20 // it is by age that a message is parked
)

// ingress makes the webhook of a configuration, in front of the generation's
// gateway. It is nil where there is none.
func (s *Server) ingress(g *generation, c *config.WhatsApp) (*whatsapp.Ingress, error) {
	if !c.On() {
		return nil, nil
	}
	verify, secrets, err := c.Secrets()
	if err != nil {
		return nil, err
	}
	reply, err := replies(c)
	if err != nil {
		return nil, err
	}
	numbers := map[string]config.WhatsAppNumber{}
	for _, n := range c.Numbers {
		numbers[n.PhoneNumberID] = n
	}
	return whatsapp.New(s.engine, whatsapp.Options{
		Gateway: g.commands, AppSecrets: secrets, VerifyToken: verify,
		Tenant: func(id string) (string, bool) {
			n, ok := numbers[id]
			return n.Tenant, ok
		},
		Map: &whatsapp.HTTPMapper{URL: c.MapperURL, Timeout: time.Duration(c.MapperTimeout)},
		Rights: func(_ context.Context, m *whatsapp.Message) ([]string, error) {
			n, ok := numbers[m.PhoneNumberID]
			if !ok || n.Tenant != m.TenantID {
				// It was taken under another configuration, maybe by a node that has it.
				return nil, errors.New("the phone number is not that of the tenant any more")
			}
			return n.Rights, nil
		},
		Reply: reply,
		Seen:  s.seen,
	})
}

// seen logs what became of one part of a delivery. Ids of messages have phone
// numbers in them, so they are not logged.
func (s *Server) seen(p whatsapp.Seen) {
	ctx, level := context.Background(), slog.LevelDebug
	attrs := []slog.Attr{slog.String("operation", p.Operation), slog.String("number", p.PhoneNumberID), slog.String("decision", string(p.Decision))}
	if p.Err != nil {
		level, attrs = slog.LevelWarn, append(attrs, slog.Any("error", p.Err))
	}
	s.log.LogAttrs(ctx, level, "whatsapp", attrs...)
}

// inbox is the destination of messages that were taken. That one of them can't be
// worked on says nothing about the next, so nothing pauses it.
func (s *Server) inbox() dispatch.Destination {
	return dispatch.Destination{
		Sender: dispatch.SenderFunc(s.work), Timeout: workTimeout, Concurrency: workAtOnce, Lease: workLease,
		MinBackoff: workMinBackoff, MaxBackoff: workMaxBackoff, MaxTries: workMaxTries, BreakAfter: -1,
	}
}

// work brings a message that was taken to the ingress that is in force.
func (s *Server) work(ctx context.Context, d dispatch.Delivery) error {
	in := s.current().whatsapp
	if in == nil {
		return errors.New("there is no webhook of WhatsApp")
	}
	if err := taken(&d); err != nil {
		return dispatch.Park("not_taken", err)
	}
	err := untilStopped(ctx, func() error { return in.Work(ctx, d.Message.Payload) })
	if refusal, ok := errors.AsType[*whatsapp.Refusal](err); ok {
		return dispatch.Park(refusal.Code, err)
	}
	if later, ok := errors.AsType[*whatsapp.Later](err); ok {
		return dispatch.RetryAfter(later.After, err)
	}
	return err
}

// taken checks that the webhook sent a message. Every caller of the execution API
// can send one to this destination, whose content would then say in whose name to
// execute what; only the webhook has its operations under its principal.
func taken(d *dispatch.Delivery) error {
	var in struct {
		TenantID string `json:"tenant_id"`
	}
	if err := json.Unmarshal(d.Message.Payload, &in); err != nil {
		return errors.New("the message is not one that the webhook sends")
	}
	by := d.Call.Operation == whatsapp.MessageOperation || d.Call.Operation == whatsapp.StatusOperation
	if !by || d.Call.Principal != config.WhatsAppPrincipal || d.Call.Tenant != in.TenantID {
		return errors.New("the message is not from the webhook")
	}
	return nil
}

// untilStopped calls work, and gives it up some time after ctx is done. By then
// only a command can be running, which nobody who hangs up stops: the handler has a
// timeout of its own. What is given up stays due, and the command is found where it
// was left.
func untilStopped(ctx context.Context, work func() error) error {
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				ended <- fmt.Errorf("work on a message panicked: %v", v)
			}
		}()
		ended <- work()
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return context.Cause(ctx)
	}
}

// errReserved is why a caller is refused who would be taken for the webhook.
var errReserved = errors.New("the principal " + config.WhatsAppPrincipal + " is the service's own")

// reserved reports whether a principal is the webhook's.
func (s *Server) reserved(principal string) bool {
	return principal == config.WhatsAppPrincipal && s.current().cfg.Commands.WhatsApp.On()
}

// A reply is what is posted to the reply_url: what to tell the sender of a message.
type reply struct {
	TenantID      string `json:"tenant_id"`
	PhoneNumberID string `json:"phone_number_id"`
	// To is the WhatsApp id of the sender, and InReplyTo that of his message.
	To        string `json:"to"`
	InReplyTo string `json:"in_reply_to"`
	// Response is that of the command; nil where nothing was executed because the
	// message was refused.
	Response *ids.Response `json:"response,omitempty"`
	Refused  *refused      `json:"refused,omitempty"`
	// ConfirmButton is the id of the button that confirms the command; empty where
	// there is nothing to confirm.
	ConfirmButton string `json:"confirm_button,omitempty"`
}

// refused is why nothing was executed.
type refused struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// replies makes what posts replies, by Standard Webhooks. It is nil where nobody is
// answered.
func replies(c *config.WhatsApp) (func(context.Context, *whatsapp.Message, *ids.Response, error) error, error) {
	if c.ReplyURL == "" {
		return nil, nil
	}
	secrets, err := c.ReplySecrets()
	if err != nil {
		return nil, err
	}
	// The operator names the address, and nobody who sends messages has a say in it.
	sender, err := dispatch.HTTP(dispatch.HTTPOptions{URL: c.ReplyURL, Secrets: secrets, AllowPrivate: true})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, m *whatsapp.Message, r *ids.Response, why error) error {
		out := reply{TenantID: m.TenantID, PhoneNumberID: m.PhoneNumberID, To: m.From, InReplyTo: m.ID, Response: r}
		if r != nil {
			out.ConfirmButton = whatsapp.ConfirmButton(r)
		} else {
			out.Refused = refusedBy(why)
		}
		body, err := json.Marshal(out)
		if err != nil {
			return dispatch.Park("reply", err)
		}
		ctx, cancel := context.WithTimeout(ctx, dispatch.DefaultTimeout)
		defer cancel()
		// A crash after this and before the message counts as done posts the reply
		// again: the receiver knows it by its id.
		return sender.Deliver(ctx, dispatch.Delivery{Message: &semel.Message{ID: replyID(m), ContentType: "application/json", Payload: body}})
	}, nil
}

// replyID follows from the message alone.
func replyID(m *whatsapp.Message) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", m.TenantID, m.PhoneNumberID, m.ID))
	return "reply_" + hex.EncodeToString(sum[:16])
}

// refusedBy is an error of the gateway, without its causes.
func refusedBy(err error) *refused {
	if e, ok := errors.AsType[*ids.Error](err); ok {
		return &refused{string(e.Reason), e.Message}
	}
	if e, ok := errors.AsType[*semel.Error](err); ok {
		return &refused{string(e.Code), e.Message}
	}
	return &refused{Code: "refused"}
}
