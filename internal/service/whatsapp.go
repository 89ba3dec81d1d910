package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/door/ids/whatsapp"
	"github.com/semelhq/semel/internal/service/config"
)

// How messages are handled. Mapper, handlers and replies have timeouts of their own, so
// messageTimeout only ends what none of these bounds.
const (
	messageTimeout    = 15 * time.Minute
	messagesAtOnce    = 16
	messageLease      = 10 * time.Second
	messageMinBackoff = time.Second
)

// whatsAppDoor is the webhook in front of a gateway. A signature proves who its caller is.
func (s *Server) whatsAppDoor(gateway *ids.Gateway, c *config.WhatsApp) (d doorway, err error) {
	verify, secrets, err := c.Secrets()
	if err != nil {
		return d, err
	}
	reply, err := s.replies(c)
	if err != nil {
		return d, err
	}
	numbers := map[string]config.WhatsAppNumber{}
	for _, n := range c.Numbers {
		numbers[n.PhoneNumberID] = n
	}
	in, err := whatsapp.New(s.engine, whatsapp.Options{
		Gateway: gateway, AppSecrets: secrets, VerifyToken: verify,
		Tenant: func(id string) (string, bool) {
			n, ok := numbers[id]
			return n.Tenant, ok
		},
		Map: &whatsapp.HTTPMapper{URL: c.MapperURL, Timeout: time.Duration(c.MapperTimeout)},
		Rights: func(_ context.Context, m *whatsapp.Message) ([]string, error) {
			n, ok := numbers[m.PhoneNumberID]
			if !ok || n.Tenant != m.TenantID {
				// The message was accepted under another configuration, perhaps by a node
				// that still has it.
				return nil, errors.New("the phone number doesn't belong to the tenant any more")
			}
			return n.Rights, nil
		},
		Reply: reply,
	})
	if err != nil {
		return d, err
	}
	return doorway{Handler: in, name: whatsapp.Name, setting: "commands.whatsapp", upstream: c.MapperURL, paths: []string{c.Path}, accepts: &accepted{
		destination: whatsapp.Destination, operations: []string{whatsapp.MessageOperation, whatsapp.StatusOperation}, principal: whatsapp.Principal,
		work: func(ctx context.Context, payload []byte) error {
			return untilStopped(ctx, func() error { return in.Work(ctx, payload) })
		},
		limits: dispatch.Destination{
			Timeout: messageTimeout, Lease: messageLease, Concurrency: messagesAtOnce, MinBackoff: messageMinBackoff,
		},
	}}, nil
}

// untilStopped calls work, and gives up some time after ctx is done. By then only a command can
// be running, which goes on even if its caller hangs up; its handler has a timeout of its own.
// An abandoned message stays due, and the next attempt finds the command as this one left it.
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
	select {
	case err := <-ended:
		return err
	case <-time.After(settleTime):
		return context.Cause(ctx)
	}
}

// A reply is posted to the reply_url: what to tell the sender of a message.
type reply struct {
	TenantID      string `json:"tenant_id"`
	PhoneNumberID string `json:"phone_number_id"`
	// To is the WhatsApp id of the sender, and InReplyTo the id of their message.
	To        string `json:"to"`
	InReplyTo string `json:"in_reply_to"`
	// Response is the command's response; nil if the message was refused and nothing
	// executed.
	Response *ids.Response `json:"response,omitempty"`
	Refused  *refused      `json:"refused,omitempty"`
	// ConfirmButton is the id of the button that confirms the command; empty if there is
	// nothing to confirm.
	ConfirmButton string `json:"confirm_button,omitempty"`
}

type refused struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// replies makes a function that posts replies; nil if no reply_url is set.
func (s *Server) replies(c *config.WhatsApp) (func(context.Context, *whatsapp.Message, *ids.Response, error) error, error) {
	if c.ReplyURL == "" {
		return nil, nil
	}
	up, err := s.newUpstream(dispatch.HTTPOptions{URL: c.ReplyURL}, c.ReplySecretFiles, config.Duration(dispatch.DefaultTimeout))
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
		// After a crash between this and the end of the message's delivery, the reply is
		// posted again; the receiver recognizes it by its id, which depends only on the message.
		id := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", m.TenantID, m.PhoneNumberID, m.ID))
		return up.post(ctx, semel.ID{}, &semel.Message{ID: "reply_" + hex.EncodeToString(id[:16]), ContentType: "application/json", Payload: body}, nil)
	}, nil
}

// refusedBy shows an error of the gateway, without its causes.
func refusedBy(err error) *refused {
	if e, ok := errors.AsType[*ids.Error](err); ok {
		return &refused{string(e.Reason), e.Message}
	}
	if e, ok := errors.AsType[*semel.Error](err); ok {
		return &refused{string(e.Code), e.Message}
	}
	return &refused{Code: "refused"}
}
