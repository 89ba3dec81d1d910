package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/protocol/webhook"
	"github.com/semelhq/semel/server/config"
	"github.com/semelhq/semel/transport/judge"
)

// receivers makes the receivers of a configuration's webhooks.
func (s *Server) receivers(g *generation, cfg *config.Config) error {
	for _, w := range cfg.Warnings() {
		s.log.Warn(w)
	}
	g.webhooks, g.events = map[string]*webhook.Receiver{}, map[string]*webhook.Receiver{}
	for i := range cfg.Webhooks {
		w := &cfg.Webhooks[i]
		opts, err := w.Receiver()
		if err != nil {
			return at(fmt.Sprintf("webhooks[%d]", i), err)
		}
		if opts.Handle, err = upstreamOf(w); err != nil {
			return at(fmt.Sprintf("webhooks[%d]", i), err)
		}
		opts.Seen = s.sawEvent
		r, err := webhook.New(s.engine, opts)
		if err != nil {
			return at(fmt.Sprintf("webhooks[%d]", i), err)
		}
		g.webhooks[w.Path], g.events[r.Destination()] = r, r
	}
	return nil
}

// upstreamOf posts events to the upstream of a webhook.
func upstreamOf(w *config.Webhook) (webhook.Handler, error) {
	up, err := newUpstream(w.Upstream, w.UpstreamSecrets, w.Timeout)
	if err != nil {
		return nil, err
	}
	holds := w.Mode == webhook.Sync && w.OnAbandoned == semel.HoldAbandoned
	return func(ctx context.Context, e *webhook.Event) error {
		m := &semel.Message{ID: e.ID, ContentType: e.Header.Get("Content-Type"), Payload: e.Body}
		err := up.post(ctx, semel.ID{Tenant: e.Tenant, Operation: webhook.OperationPrefix + w.Name}, m, eventHeader(e))
		if err == nil {
			return nil
		}
		// A refusal is no end for the sender, who delivers until the event is taken: by
		// then the upstream may take it. By a refusal it has said that it did nothing.
		switch found := dispatch.FindingOf(err); {
		case found.Verdict == judge.Unknown && holds:
			return semel.Unknown(errors.New(found.Why()))
		case found.Verdict == judge.Failed:
			return semel.Failure(err)
		}
		return err
	}, nil
}

// eventHeader is what an upstream learns of an event beside its body.
func eventHeader(e *webhook.Event) http.Header {
	h := e.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Del(judge.EffectHeader)
	encoded(h, "Semel-Event-Source", e.Source, "Semel-Event-Key", e.Key, "Semel-Event-Type", e.Type)
	if p := e.Payment; p != nil {
		encoded(h,
			"Semel-Payment", p.ID, "Semel-Payment-Step", string(p.Step),
			"Semel-Payment-State", p.State, "Semel-Payment-Sequence", strconv.Itoa(p.Sequence),
		)
	}
	return h
}

// sawEvent logs what became of an event in one delivery. Keys may have what a sender knows
// of a person, so they are not logged.
func (s *Server) sawEvent(seen webhook.Seen) {
	ctx, level := context.Background(), slog.LevelDebug
	attrs := []slog.Attr{
		slog.String("webhook", seen.Receiver), slog.String("source", seen.Event.Source), slog.String("tenant", seen.Event.Tenant),
		slog.String("type", seen.Event.Type), slog.String("decision", string(seen.Decision)),
	}
	if seen.Record != (semel.ID{}) {
		attrs = append(attrs, slog.String("record", seen.Record.Encode()))
	}
	if !seen.First.IsZero() {
		attrs = append(attrs, slog.String("digest", seen.Content.String()), slog.String("first_digest", seen.First.String()))
	}
	if seen.Parked != (semel.ID{}) {
		attrs = append(attrs, slog.String("parked", seen.Parked.Encode()))
	}
	if seen.Err != nil {
		level, attrs = slog.LevelWarn, append(attrs, slog.Any("error", seen.Err))
	}
	if _, refused := errors.AsType[*webhook.Refusal](seen.Err); refused && seen.Decision == "" {
		level = slog.LevelInfo // anybody can send what nobody has signed
	}
	s.log.LogAttrs(ctx, level, "webhook", attrs...)
}

// eventDestinations are the destinations of the events that are taken first and posted
// later: those of webhooks with ack, and conflicts that somebody replays.
func (s *Server) eventDestinations(cfg *config.Config, own map[string]dispatch.Destination) {
	for i := range cfg.Webhooks {
		w := &cfg.Webhooks[i]
		name := webhook.OperationPrefix + w.Name
		d := takenDestination(name, webhook.Principal, w.Timeout, w.Lease, func(ctx context.Context, d dispatch.Delivery) error {
			return s.postEvent(ctx, name, d)
		})
		if w.Payments != "" {
			d.BreakAfter = -1 // an event that waits for another says nothing about the upstream
		}
		own[name] = d
	}
}

// postEvent brings an event that was taken to the receiver that is in force.
func (s *Server) postEvent(ctx context.Context, destination string, d dispatch.Delivery) error {
	r := s.current().events[destination]
	if r == nil {
		return errors.New("there is no such webhook")
	}
	return dispatched(r.Work(ctx, d.Message.Payload))
}
