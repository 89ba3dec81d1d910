package service

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/config"
)

// webhookDoor receives what one sender signs. No page in a browser can do that.
func (s *Server) webhookDoor(g *generation, w *config.Webhook) (d doorway, err error) {
	opts, err := w.Receiver()
	if err != nil {
		return d, err
	}
	if opts.Handle, err = s.upstreamOf(w); err != nil {
		return d, err
	}
	if w.Settles != "" {
		opts.Handle = g.settling(w.Settles, opts.Handle)
	}
	r, err := webhook.New(s.engine, opts)
	if err != nil {
		return d, err
	}
	name := r.Destination()
	return doorway{Handler: r, name: webhook.Name, upstream: w.Upstream, paths: []string{w.Path}, accepts: &accepted{
		destination: name, operations: []string{name}, principal: webhook.Principal, work: r.Work,
		limits: dispatch.Destination{Timeout: time.Duration(w.Timeout) + acceptedExtra, Lease: time.Duration(w.Lease)},
	}, explain: explainWebhook(name, opts.VerifierOptions)}, nil
}

// WebhookDetails are the details of an explanation for a webhook.
type WebhookDetails struct {
	Source *webhook.Source
	webhook.Diagnosis
}

// explainWebhook verifies a delivery and says why it would be refused.
func explainWebhook(operation string, opts webhook.VerifierOptions) func(*http.Request, []byte, *api.Explained) error {
	return func(r *http.Request, body []byte, found *api.Explained) error {
		found.Operation = operation
		if r.Method != http.MethodPost {
			return nil
		}
		v, err := webhook.NewVerifier(opts)
		if err == nil {
			found.Details = WebhookDetails{opts.Source, v.Diagnose(&webhook.Delivery{Header: r.Header, Body: body, Query: r.URL.RawQuery}, opts.Secrets)}
		}
		return err
	}
}

func (s *Server) upstreamOf(w *config.Webhook) (webhook.Handler, error) {
	up, err := s.newUpstream(dispatch.HTTPOptions{URL: w.Upstream, Answers: judge.Answers(w.Answers)}, w.UpstreamSecretFiles, w.Timeout)
	if err != nil {
		return nil, err
	}
	sync := w.Mode == webhook.Sync
	answers, _ := judge.Answers(w.Answers).Parse() // they were checked
	forbidden := (&judge.Rules{Answers: answers}).Forbidden()
	return func(ctx context.Context, e *webhook.Event) error {
		m := &semel.Message{ID: e.ID, ContentType: e.Header.Get("Content-Type"), Payload: e.Body}
		err := up.post(ctx, semel.ID{Tenant: e.Tenant, Operation: webhook.OperationPrefix + w.Name}, m, eventHeader(e, forbidden))
		if err == nil {
			return nil
		}
		// After a refusal the sender delivers again, and the upstream may accept the event
		// then. By the refusal it has said that it did nothing.
		switch found := dispatch.FindingOf(err); {
		case found.Verdict == judge.Unknown && sync:
			return semel.Abandoned(errors.New(found.Why()))
		case found.Verdict == judge.Failed:
			return semel.Failure(err)
		}
		return err
	}, nil
}

// eventHeader is what an upstream learns of an event beside its body. It doesn't get what the
// sender must not have it repeat.
func eventHeader(e *webhook.Event, forbidden []string) http.Header {
	h := e.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	for _, name := range forbidden {
		h.Del(name)
	}
	encoded(h, "Semel-Event-Source", e.Source, "Semel-Event-Key", e.Key, "Semel-Event-Type", e.Type)
	if p := e.Payment; p != nil {
		encoded(h,
			"Semel-Payment", p.ID, "Semel-Payment-Step", string(p.Step),
			"Semel-Payment-State", p.State, "Semel-Payment-Sequence", strconv.Itoa(p.Sequence),
		)
	}
	return h
}

// settling has events that say whether a buyer was charged settle the payment of commerce that
// they refer to, at a path of their bodies. So one payment is one record, whether its answer or
// its webhook comes first.
func (g *generation) settling(path string, next webhook.Handler) webhook.Handler {
	return func(ctx context.Context, e *webhook.Event) error {
		at, p := e.Body, e.Payment
		for name := range strings.SplitSeq(path, ".") {
			at = jsonscan.Member(at, name)
		}
		reference, _ := jsonscan.Text(at)
		if p == nil || reference == "" || p.On != "authorized" && p.On != "captured" && p.On != "canceled" {
			return next(ctx, e)
		}
		told := commerce.Told{Reference: reference, Refused: p.On == "canceled"}
		if !told.Refused {
			told.Charged.TransactionID = p.ID
		}
		err := g.mandates.Tell(ctx, e.Tenant, told)
		if errors.Is(err, semel.ErrConflict) || errors.Is(err, semel.ErrNotFound) {
			return &webhook.Refusal{Code: "payment_differs", Err: err} // somebody has to look
		} else if err != nil {
			return semel.Aborted(err) // such as while the charge is running: the event comes again
		}
		return next(ctx, e)
	}
}
