package whatsapp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/door/inbox"
	"github.com/semelhq/semel/door/webhook"
)

// The operations that accept messages and status updates.
const (
	MessageOperation = "whatsapp.message"
	StatusOperation  = "whatsapp.status"
)

// Destination is the destination of accepted messages; a dispatcher has to pass them to
// [Ingress.Work].
const Destination = "whatsapp"

// Principal is the principal that accepts messages. Nobody else may use it there, because its
// records say what to execute. With the sender as principal, a message that comes again with
// another sender would have another identity.
const Principal = "whatsapp"

// Defaults and bounds of [Options].
const (
	// DefaultBudget is well below 5 seconds, after which WhatsApp is said to give up.
	DefaultBudget = 4 * time.Second
	// DefaultWindow is longer than WhatsApp repeats a message.
	DefaultWindow = 7 * 24 * time.Hour
	// MaxBody is the longest body that the webhook reads, in bytes. WhatsApp sends no longer ones.
	MaxBody = 3 << 20
	// MaxMessage is the longest message that is processed, in bytes. Media are
	// references, so real messages are far shorter.
	MaxMessage = 256 << 10
)

// Options configure an [Ingress].
type Options struct {
	// Gateway executes the commands. Required, on the same engine.
	Gateway *ids.Gateway
	// AppSecrets sign the deliveries. At least one; two while one replaces the other.
	AppSecrets []string
	// VerifyToken is the verify token in the app's settings, for the handshake. Required.
	VerifyToken string
	// Tenant returns the tenant of a phone number, by its id. Required. A message to a
	// number without a tenant isn't accepted, so WhatsApp delivers it again.
	Tenant func(phoneNumberID string) (tenant string, ok bool)
	// Map reads a command from a message. Required.
	Map Mapper
	// Rights returns the rights of a message's sender. Optional: none.
	Rights func(ctx context.Context, m *Message) ([]string, error)
	// Reply answers the sender by sending them a message. It gets the response, or the reason
	// why nothing was executed. After a crash, or an error, it is called again with the same
	// arguments, so derive the id of your message from m.ID. Optional.
	Reply func(ctx context.Context, m *Message, r *ids.Response, refused error) error
	// Status gets status updates of sent messages. Nil: they aren't accepted.
	Status func(ctx context.Context, s *Status) error
	// Budget is how long a webhook waits until its messages are accepted. Then it answers 503; calls
	// that have begun continue, and the next delivery finds them. Defaults to [DefaultBudget].
	Budget time.Duration
	// Window is how long a message is recognised. Defaults to [DefaultWindow]; at least a day.
	Window time.Duration
	// Evidence is how much goes to the evidence log. Defaults to decisions, which logs every
	// delivery of a message, even with different content; a crash may lose the last 10
	// milliseconds. With durable it loses no delivery that got 200.
	Evidence semel.EvidenceLevel
}

// Name marks the records of messages and status updates; see [semel.Call].Door.
const Name = "whatsapp"

// Ingress is the webhook of a WhatsApp app. It has no state of its own: any number of them, on
// any number of nodes, may serve one store. Its methods may be called concurrently.
//
// The engine's Events get each refused batch in Answered, and each part of the others, accepted
// or not. Err says why a part wasn't accepted, or that it is a conflict.
type Ingress struct {
	tap      semel.Internal
	inboxes  map[string]*inbox.Inbox[head] // by operation
	verifier *webhook.Verifier
	opts     Options
}

// New makes an ingress and registers its operations. The error reports all problems with the
// options. You need a dispatcher that passes messages to [Destination] to [Ingress.Work].
func New(engine *semel.Engine, opts Options) (*Ingress, error) {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("whatsapp: "+what))
		}
	}
	need(engine != nil, "an engine is missing")
	need(opts.Gateway != nil, "Gateway is missing")
	verifier, err := webhook.NewVerifier(webhook.VerifierOptions{Source: source(), Secrets: opts.AppSecrets})
	if err != nil {
		errs = append(errs, fmt.Errorf("whatsapp: AppSecrets: %w", err))
	}
	need(len(opts.VerifyToken) >= minSecret, "VerifyToken is missing or too short")
	need(opts.Tenant != nil, "Tenant is missing")
	need(opts.Map != nil, "Map is missing")
	need(opts.Budget >= 0, "Budget is negative")
	need(opts.Window == 0 || opts.Window >= 24*time.Hour, "Window is shorter than WhatsApp repeats its deliveries: 24 hours")
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	opts.Budget = cmp.Or(opts.Budget, DefaultBudget)
	opts.Window = cmp.Or(opts.Window, DefaultWindow)
	opts.Evidence = cmp.Or(opts.Evidence, semel.EvidenceDecisions)
	in := &Ingress{tap: engine.Internal(), inboxes: map[string]*inbox.Inbox[head]{}, verifier: verifier, opts: opts}
	for _, operation := range []string{MessageOperation, StatusOperation} {
		in.inboxes[operation], err = inbox.New(engine, inbox.Options[head]{
			Name: operation, Destination: Destination, Door: Name, Principal: Principal,
			Window: opts.Window, Budget: opts.Budget, Evidence: opts.Evidence, Handle: in.handle,
		})
		if err != nil {
			return nil, err
		}
	}
	return in, nil
}
