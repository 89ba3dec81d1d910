package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/protocol/activitypub"
	"github.com/semelhq/semel/protocol/ids/whatsapp"
	"github.com/semelhq/semel/protocol/inbox"
	"github.com/semelhq/semel/protocol/webhook"
	"github.com/semelhq/semel/server/config"
)

// How accepted items are handled. They are retried until they are too old, however many
// attempts that takes.
const (
	acceptedMaxTries   = 1 << 20
	acceptedMaxBackoff = 5 * time.Minute
	// acceptedExtra is what an attempt may take beside its upstream: reading the state of a
	// payment, for example.
	acceptedExtra = 15 * time.Second
)

// How messages from WhatsApp are handled. Mapper, handlers and replies have timeouts of
// their own, so messageTimeout only ends what none of these bounds.
const (
	messageTimeout    = 15 * time.Minute
	messagesAtOnce    = 16
	messageLease      = 10 * time.Second
	messageMinBackoff = time.Second
)

// worker handles an item that a door has accepted: payload is that of its message.
type worker func(ctx context.Context, payload []byte) error

// accepts notes who handles what a door accepts under its own principal.
func (g *generation) accepts(destination, principal string, w worker) {
	g.workers[destination], g.principals[principal] = w, true
}

// acceptedDestinations are the destinations of what the doors of a configuration accept.
// After a crash while an item is handled, another attempt follows when the lease is over.
func (s *Server) acceptedDestinations(cfg *config.Config) map[string]dispatch.Destination {
	own := map[string]dispatch.Destination{}
	for i := range cfg.Webhooks {
		w := &cfg.Webhooks[i]
		name := webhook.OperationPrefix + w.Name
		d := s.accepted(name, webhook.Principal, name)
		d.Timeout, d.Lease = time.Duration(w.Timeout)+acceptedExtra, time.Duration(w.Lease)
		if w.Payments != "" {
			d.BreakAfter = -1 // an event that waits for another says nothing about the upstream
		}
		own[name] = d
	}
	for i := range cfg.ActivityPub {
		a := &cfg.ActivityPub[i]
		name := activitypub.OperationPrefix + a.Name
		d := s.accepted(name, activitypub.Principal, name)
		d.Timeout, d.Lease = time.Duration(a.Timeout)+acceptedExtra, time.Duration(a.Lease)
		own[name] = d
	}
	if cfg.Commands.WhatsApp.On() {
		d := s.accepted(whatsapp.Destination, whatsapp.Principal, whatsapp.MessageOperation, whatsapp.StatusOperation)
		d.Timeout, d.Lease, d.Concurrency, d.MinBackoff = messageTimeout, messageLease, messagesAtOnce, messageMinBackoff
		d.BreakAfter = -1 // that one message can't be handled says nothing about the next
		own[whatsapp.Destination] = d
	}
	return own
}

// accepted is the destination of what a door accepts by some operations, under its own
// principal.
func (s *Server) accepted(name, principal string, operations ...string) dispatch.Destination {
	return dispatch.Destination{
		// Whoever could send such a message would choose what is done, and in whose name.
		Allow: func(call semel.ID) bool {
			who, _ := call.Scope()
			return who == principal && slices.Contains(operations, call.Operation)
		},
		Sender: dispatch.SenderFunc(func(ctx context.Context, d dispatch.Delivery) error {
			work := s.current().workers[name]
			if work == nil {
				return errors.New("the door that accepted it isn't configured")
			}
			return dispatched(work(ctx, d.Message.Payload))
		}),
		MaxBackoff: acceptedMaxBackoff, MaxTries: acceptedMaxTries,
	}
}

// dispatched says to a dispatcher what the error of a worker means.
func dispatched(err error) error {
	if refusal, ok := errors.AsType[*inbox.Refusal](err); ok {
		return dispatch.Park(string(refusal.Code), err)
	}
	if later, ok := errors.AsType[*inbox.Later](err); ok {
		return dispatch.RetryAfter(later.After, err)
	}
	return err
}
