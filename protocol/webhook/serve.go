package webhook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"time"

	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/problem"
)

// takeAtOnce is how many parts of one delivery are taken at a time. Stores commit
// concurrent writes together (group commit).
const takeAtOnce = 16

// maxChallenge bounds the challenge of a handshake, in bytes.
const maxChallenge = 256

// ServeHTTP takes deliveries:
//
//	POST  200 when every event is taken, or handled with [Sync]; 401 if the signature or
//	      its time is wrong, 413 if the body or an event is too long or
//	      there are too many, 400 if it can't be
//	      read, and 503 if an event wasn't taken, so that the delivery comes again;
//	      200 with the challenge, if it is the source's handshake
//	GET   the handshake, if the source has one: 200 with the challenge, or 403
//
// A duplicate gets 200, and so does an event that was taken with another content before,
// because the sender could do nothing about it; see [Options].OnConflict. Refusals are problem documents (RFC 9457), whose
// code says why.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case req.Method == http.MethodPost:
		r.deliver(w, req)
	case req.Method == http.MethodGet && r.source.Handshake.Token != "":
		r.handshake(w, req)
	default:
		w.Header().Set("Allow", r.allowed())
		r.refuse(w, http.StatusMethodNotAllowed, &Refusal{"method_not_allowed", errors.New("webhooks are posted")})
	}
}

func (r *Receiver) allowed() string {
	if r.source.Handshake.Token != "" {
		return "GET, POST"
	}
	return "POST"
}

func (r *Receiver) deliver(w http.ResponseWriter, req *http.Request) {
	text, err := body.Read(w, req, r.opts.MaxBody)
	if errors.Is(err, body.ErrTooLong) {
		r.refuse(w, http.StatusRequestEntityTooLarge, refusal(codeTooLong, "the body is longer than %d bytes", r.opts.MaxBody))
		return
	}
	if err != nil {
		r.refuse(w, http.StatusBadRequest, refusal("broken_off", "the body broke off"))
		return
	}
	d := &Delivery{Header: req.Header, Body: text}
	if r.asks(d) {
		r.confirm(w, d)
		return
	}
	events, err := r.Verify(d)
	if refused, ok := errors.AsType[*Refusal](err); ok {
		r.refuse(w, statusOf(refused.Code), refused)
		return
	}
	if len(events) == 0 {
		r.report(Seen{Event: r.nothing(), Err: errNoEvent})
	}
	for i := range events {
		if r.opts.Mode == Ack && len(events[i].Body) > MaxEvent {
			r.refuse(w, http.StatusRequestEntityTooLarge, refusal(codeTooLong, "an event is longer than %d bytes", MaxEvent))
			return
		}
	}
	// If the sender hangs up, its events are taken nevertheless.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), r.opts.Budget)
	defer cancel()
	err = TakeAll(ctx, events, r.take)
	if refused, ok := errors.AsType[*Refusal](err); ok && refused.Code == codeTooLong {
		r.write(w, http.StatusRequestEntityTooLarge, refused)
		return
	}
	if err != nil {
		problem.RetryAfter(w.Header(), retryAfter)
		r.write(w, http.StatusServiceUnavailable, refusal("not_taken", "not all of it is taken: deliver it again"))
		return
	}
	problem.WriteBody(w, http.StatusOK, "text/plain; charset=utf-8", []byte(r.source.Answer))
}

const (
	codeTooLong = Code("too_long")
	// retryAfter is what a sender is told that has to deliver again.
	retryAfter = 5 * time.Second
)

// errNoEvent is reported of a delivery that the sender has signed and in which no rule of
// the source finds an event. It gets 2xx: the sender can't do better.
var errNoEvent = errors.New("the delivery has no event that the source has a rule for: nothing of it is kept")

// nothing is an event of which nothing is known.
func (r *Receiver) nothing() *Event { return &Event{Tenant: r.opts.Tenant, Source: r.source.Name} }

// statusOf is the status of a refused delivery.
func statusOf(code Code) int {
	switch code {
	case codeTooLong:
		return http.StatusRequestEntityTooLarge
	case CodeUnreadable, CodeUnidentified:
		return http.StatusBadRequest
	}
	return http.StatusUnauthorized
}

// TakeAll calls take for each part of a delivery, a few at a time, and returns the first
// error. If ctx is done before all have returned, calls that have begun continue, and
// another delivery finds their outcome.
func TakeAll[T any](ctx context.Context, parts []T, take func(ctx context.Context, part *T) error) error {
	results := make(chan error, len(parts))
	next := make(chan *T)
	for range min(takeAtOnce, len(parts)) {
		go func() {
			for p := range next {
				results <- take(ctx, p)
			}
		}()
	}
	go func() {
		defer close(next)
		for i := range parts {
			select {
			case next <- &parts[i]:
			case <-ctx.Done():
				return
			}
		}
	}()
	var first error
	for range parts {
		select {
		case err := <-results:
			first = cmp.Or(first, err)
		case <-ctx.Done():
			return cmp.Or(first, ctx.Err())
		}
	}
	return first
}

// handshake confirms to the sender that this is the address it was given.
func (r *Receiver) handshake(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	// Digests have one length, so the token's length doesn't show.
	want, got := sha256.Sum256([]byte(r.opts.VerifyToken)), sha256.Sum256([]byte(q.Get(r.source.Handshake.Token)))
	challenge := q.Get(r.source.Handshake.Challenge)
	if subtle.ConstantTimeCompare(want[:], got[:]) != 1 || challenge == "" || len(challenge) > maxChallenge {
		r.refuse(w, http.StatusForbidden, refusal("handshake_refused", "the handshake is refused"))
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

// confirm is the answer to the handshake by POST. Only who has the secret gets it.
func (r *Receiver) confirm(w http.ResponseWriter, d *Delivery) {
	if refused, ok := errors.AsType[*Refusal](r.Check(d)); ok {
		r.refuse(w, statusOf(refused.Code), refused)
		return
	}
	challenge, err := r.view(d).bytes(r.source.Handshake.challenge)
	if err != nil || len(challenge) == 0 || len(challenge) > maxChallenge {
		r.refuse(w, http.StatusBadRequest, refusal("handshake_refused", "the handshake has no challenge of up to %d bytes", maxChallenge))
		return
	}
	problem.WriteBody(w, http.StatusOK, "text/plain; charset=utf-8", challenge)
}

// refuse answers a delivery of which nothing is taken.
func (r *Receiver) refuse(w http.ResponseWriter, status int, why *Refusal) {
	r.report(Seen{Event: r.nothing(), Err: why})
	r.write(w, status, why)
}

func (r *Receiver) write(w http.ResponseWriter, status int, why *Refusal) {
	problem.Write(w, status, map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status,
		"code": why.Code, "detail": problem.Sentence(why.Err.Error()),
	})
}
