package webhook

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/inbox"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/problem"
)

// maxChallenge bounds the challenge of a handshake, in bytes.
const maxChallenge = 256

// ServeHTTP receives deliveries:
//
//	POST  200 when every event is accepted, or handled with [Sync]; 401 if the signature
//	      or its time is wrong, 413 if the body or an event is too long or there are too
//	      many, 400 if it can't be read, and 503 if an event wasn't accepted, so that the
//	      delivery comes again; 200 with the challenge, if it is the source's handshake
//	GET   the handshake, if the source has one: 200 with the challenge, or 403
//
// A duplicate gets 200, and so does an event that was accepted with other content before,
// because the sender can't do anything about it; see [Options].OnConflict. Refusals are problem
// documents (RFC 9457) with a code that says why.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case req.Method == http.MethodPost:
		r.deliver(w, req)
	case req.Method == http.MethodGet && r.source.Handshake.Token != "":
		r.handshake(w, req)
	default:
		allow := "POST"
		if r.source.Handshake.Token != "" {
			allow = "GET, POST"
		}
		w.Header().Set("Allow", allow)
		r.refuse(w, req, http.StatusMethodNotAllowed, inbox.Refuse("method_not_allowed", "webhooks are posted"))
	}
}

func (r *Receiver) deliver(w http.ResponseWriter, req *http.Request) {
	text, err := body.Read(w, req, r.opts.MaxBody)
	switch {
	case errors.Is(err, body.ErrRefused):
		return
	case errors.Is(err, body.ErrTooLong):
		r.refuse(w, req, http.StatusRequestEntityTooLarge, inbox.Refuse(inbox.CodeTooLong, "the body is longer than %d bytes", r.opts.MaxBody))
		return
	case err != nil:
		r.refuse(w, req, http.StatusBadRequest, inbox.Refuse("broken_off", "the body broke off"))
		return
	}
	events, asks, err := r.read(w, req, &Delivery{Header: req.Header, Body: text, Query: req.URL.RawQuery})
	if asks {
		return
	}
	if refused, ok := errors.AsType[*Refusal](err); ok {
		r.refuse(w, req, statusOf(refused.Code), refused)
		return
	}
	if len(events) == 0 {
		r.tell(req, 0, errNoEvent)
	}
	for i := range events {
		events[i].request = req.Header
		if r.opts.Mode == Ack && len(events[i].Body) > MaxEvent {
			r.refuse(w, req, http.StatusRequestEntityTooLarge, inbox.Refuse(inbox.CodeTooLong, "an event is longer than %d bytes", MaxEvent))
			return
		}
	}
	ctx, cancel := inbox.Within(req.Context(), r.opts.Budget)
	defer cancel()
	err = inbox.Each(ctx, events, r.accept)
	if refused, ok := errors.AsType[*Refusal](err); ok && refused.Code == inbox.CodeTooLong {
		r.write(w, http.StatusRequestEntityTooLarge, refused)
		return
	}
	if err != nil {
		problem.RetryAfter(w.Header(), retryAfter)
		r.write(w, http.StatusServiceUnavailable, inbox.Refuse("not_accepted", "not all of it was accepted: deliver it again"))
		return
	}
	problem.WriteBody(w, http.StatusOK, r.source.AnswerType, []byte(r.source.Answer))
}

// read returns the events of a delivery, or answers it if it is a handshake.
func (r *Receiver) read(w http.ResponseWriter, req *http.Request, d *Delivery) (events []Event, asks bool, err error) {
	free, err := r.slot(req.Context(), d)
	if err != nil {
		return nil, true, nil // the sender is gone
	}
	defer free()
	if d, err = r.Decode(d); err != nil {
		return nil, false, err
	}
	if r.asks(d) {
		r.confirm(w, req, d)
		return nil, true, nil
	}
	events, err = r.Verify(d)
	return events, false, err
}

// retryAfter says when a sender should deliver again.
const retryAfter = 5 * time.Second

// errNoEvent is the error of a signed delivery without an event by the source's rules. It gets
// 2xx: the sender can't do better.
var errNoEvent = errors.New("the delivery has no event that the source has a rule for: nothing of it is kept")

// tell reports a delivery without an event.
func (r *Receiver) tell(req *http.Request, status int, why error) {
	door.Tell(req.Context(), r.engine.Internal(), Name, req.Header, func(context.Context) (semel.Delivered, bool) {
		return r.told(&Event{Tenant: r.opts.Tenant, Source: r.source.Name, status: status}, &inbox.Result{Err: why}), true
	})
}

// statusOf returns the status of a refused delivery.
func statusOf(code Code) int {
	switch code {
	case inbox.CodeTooLong:
		return http.StatusRequestEntityTooLarge
	case CodeUnreadable, CodeUnidentified:
		return http.StatusBadRequest
	}
	return http.StatusUnauthorized
}

// Confirm returns the challenge of a handshake by GET, which is also its answer, if the request
// has the token that only the owner of the address knows.
func (s *Source) Confirm(q url.Values, token string) (challenge string, ok bool) {
	// All digests have the same length, so the token's length doesn't show.
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(q.Get(s.Handshake.Token)))
	challenge = q.Get(s.Handshake.Challenge)
	return challenge, subtle.ConstantTimeCompare(want[:], got[:]) == 1 && challenge != "" && len(challenge) <= maxChallenge
}

// handshake confirms to the sender that this is the right address.
func (r *Receiver) handshake(w http.ResponseWriter, req *http.Request) {
	challenge, ok := r.source.Confirm(req.URL.Query(), r.opts.VerifyToken)
	if !ok {
		r.refuse(w, req, http.StatusForbidden, inbox.Refuse("handshake_refused", "the handshake is refused"))
		return
	}
	problem.WriteBody(w, http.StatusOK, "text/plain; charset=utf-8", []byte(challenge))
}

// asks reports whether a POST is the handshake.
func (r *Receiver) asks(d *Delivery) bool {
	h := &r.source.Handshake
	if h.Posted == "" {
		return false
	}
	value, err := r.view(d).bytes(h.mark)
	return err == nil && string(value) == h.value
}

// confirm answers a handshake by POST. Only a sender with the secret gets the answer.
func (r *Receiver) confirm(w http.ResponseWriter, req *http.Request, d *Delivery) {
	if refused, ok := errors.AsType[*Refusal](r.Check(d)); ok {
		r.refuse(w, req, statusOf(refused.Code), refused)
		return
	}
	challenge, err := r.view(d).bytes(r.source.Handshake.challenge)
	if err != nil || len(challenge) == 0 || len(challenge) > maxChallenge {
		r.refuse(w, req, http.StatusBadRequest, inbox.Refuse("handshake_refused", "the handshake has no challenge of up to %d bytes", maxChallenge))
		return
	}
	problem.WriteBody(w, http.StatusOK, "text/plain; charset=utf-8", challenge)
}

// refuse answers a delivery that is rejected as a whole, and reports it.
func (r *Receiver) refuse(w http.ResponseWriter, req *http.Request, status int, why *Refusal) {
	r.tell(req, status, why)
	door.SetEffect(w.Header(), door.EffectNone)
	r.write(w, status, why)
}

func (r *Receiver) write(w http.ResponseWriter, status int, why *Refusal) {
	problem.Write(w, status, map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status,
		"code": why.Code, "detail": problem.Sentence(why.Err.Error()), "action": door.ActionOf(semel.Code(why.Code), status),
	})
}
