package whatsapp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/inbox"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/body"
)

// ServeHTTP is the webhook:
//
//	GET   the handshake: 200 with the challenge, or 403
//	POST  200 when every message of the batch is accepted; 401 without a signature, 403
//	      with a wrong one, 413 over [MaxBody] or 1,000 messages and statuses, 400 if the
//	      body isn't a webhook, and 503 if a message wasn't accepted, so that the batch
//	      comes again
//
// The signature is verified before the body is parsed or anything is stored.
func (in *Ingress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch r.Method {
	case http.MethodGet:
		in.handshake(w, r)
	case http.MethodPost:
		in.deliver(w, r)
	default:
		w.Header().Set("Allow", "GET, POST")
		in.refuse(w, r, http.StatusMethodNotAllowed, "method_not_allowed", "use GET or POST")
	}
}

func (in *Ingress) deliver(w http.ResponseWriter, r *http.Request) {
	text, err := body.Read(w, r, MaxBody)
	switch {
	case errors.Is(err, body.ErrRefused):
		return
	case errors.Is(err, body.ErrTooLong):
		in.refuse(w, r, http.StatusRequestEntityTooLarge, inbox.CodeTooLong, "the body is too long")
		return
	case err != nil:
		in.refuse(w, r, http.StatusBadRequest, "broken_off", "the body broke off")
		return
	}
	err = in.verifier.Check(&webhook.Delivery{Header: r.Header, Body: text})
	refused, _ := errors.AsType[*webhook.Refusal](err)
	switch {
	case refused != nil && refused.Code == webhook.CodeSignatureMissing:
		in.refuse(w, r, http.StatusUnauthorized, refused.Code, "the signature is missing")
		return
	case err != nil:
		why := "the signature is wrong"
		if body.CodingOf(r.Header) != body.Plain {
			why += ", and the body has a Content-Encoding, so it isn't what was signed"
		}
		in.refuse(w, r, http.StatusForbidden, webhook.CodeSignatureWrong, why)
		return
	}
	parts, err := split(text, in.opts.Status != nil)
	switch {
	case errors.Is(err, errMany):
		in.refuse(w, r, http.StatusRequestEntityTooLarge, inbox.CodeTooLong, err.Error())
		return
	case err != nil:
		in.refuse(w, r, http.StatusBadRequest, inbox.CodeUnreadable, err.Error())
		return
	}
	ctx, cancel := inbox.Within(r.Context(), in.opts.Budget)
	defer cancel()
	if err := inbox.Each(ctx, parts, func(ctx context.Context, p *part) (err error) {
		door.Tell(ctx, in.tap, Name, r.Header, func(ctx context.Context) (e semel.Delivered, _ bool) {
			e, err = in.accept(ctx, p)
			return e, true
		})
		return err
	}); err != nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "not all of it was accepted: deliver it again", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// handshake confirms to WhatsApp that this is the app's webhook.
func (in *Ingress) handshake(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	challenge, ok := source().Confirm(q, in.opts.VerifyToken)
	if !ok || q.Get("hub.mode") != "subscribe" {
		in.refuse(w, r, http.StatusForbidden, "handshake_refused", "the handshake is refused")
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(challenge)) // WhatsApp asks again if the answer was lost
}

// errNoTenant: the phone number has no tenant, so the part isn't accepted.
var errNoTenant = errors.New("the phone number is nobody's")

// head is the stored part of a part besides its body.
type head struct {
	Operation     string     `json:"operation"`
	PhoneNumberID string     `json:"phone_number_id"`
	Mistake       inbox.Code `json:"mistake,omitempty"`
}

// accept makes one part durable, once. A concurrent duplicate waits for it. The error is nil if
// the sender has done its part: if a message was accepted before with other content, the
// evidence log has that, and there is nothing more to accept.
func (in *Ingress) accept(ctx context.Context, p *part) (semel.Delivered, error) {
	tenant, ok := in.opts.Tenant(p.phone)
	res, err := inbox.Result{Err: errNoTenant}, errNoTenant
	if ok && tenant != "" {
		it := &inbox.Item[head]{
			Tenant: tenant, Key: p.key, Fingerprint: p.print, Head: head{p.operation, p.phone, p.mistake}, Body: p.raw, ReceivedAt: time.Now().UTC(),
		}
		if p.mistake == inbox.CodeTooLong {
			it.Body = nil // the key has its digest
		}
		res, err = in.inboxes[p.operation].Accept(ctx, it)
	}
	e := res.Event()
	e.ID.Tenant, e.ID.Operation = tenant, p.operation
	e.Attrs = []slog.Attr{slog.String("number", p.phone)}
	return e, err
}

// refuse answers a request without looking at its parts.
func (in *Ingress) refuse(w http.ResponseWriter, r *http.Request, status int, code inbox.Code, why string) {
	door.Tell(r.Context(), in.tap, Name, r.Header, func(context.Context) (semel.Delivered, bool) {
		return semel.Delivered{Code: semel.Code(code), Status: status}, true
	})
	http.Error(w, why, status)
}
