package whatsapp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/protocol/inbox"
	"github.com/semelhq/semel/protocol/webhook"
)

// principal is the principal of all messages. If it were the sender, a message that
// comes again with another sender would have another identity.
const principal = "whatsapp"

// ServeHTTP is the webhook:
//
//	GET   the handshake: 200 with the challenge, or 403
//	POST  200 when every message of the batch is taken; 401 without a signature, 403
//	      with a wrong one, 413 over [MaxBody] or 1,000 messages and statuses, 400 if the
//	      body isn't a webhook, and 503 if a message wasn't taken, so that the batch comes
//	      again
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
		refuse(w, http.StatusMethodNotAllowed, "use GET or POST")
	}
}

func (in *Ingress) deliver(w http.ResponseWriter, r *http.Request) {
	text, err := body.Read(w, r, MaxBody)
	if errors.Is(err, body.ErrTooLong) {
		refuse(w, http.StatusRequestEntityTooLarge, "the body is too long")
		return
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "the body broke off")
		return
	}
	err = in.verifier.Check(&webhook.Delivery{Header: r.Header, Body: text})
	if refused, ok := errors.AsType[*webhook.Refusal](err); ok && refused.Code == webhook.CodeSignatureMissing {
		refuse(w, http.StatusUnauthorized, "the signature is missing")
		return
	}
	if err != nil {
		refuse(w, http.StatusForbidden, "the signature is wrong")
		return
	}
	parts, err := split(text, in.opts.Status != nil)
	if errors.Is(err, errMany) {
		refuse(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	// If the sender hangs up, its messages are taken nevertheless.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), in.opts.Budget)
	defer cancel()
	if err := inbox.Each(ctx, parts, in.take); err != nil {
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "not all of it is taken: deliver it again")
		return
	}
	w.WriteHeader(http.StatusOK)
}

// errNoTenant: the phone number has no tenant, so the part isn't taken.
var errNoTenant = errors.New("the phone number is nobody's")

// take makes one part durable, once. A concurrent duplicate waits for it. It returns nil
// if the sender has done its part.
func (in *Ingress) take(ctx context.Context, p *part) error {
	tenant, ok := in.opts.Tenant(p.phone)
	if !ok || tenant == "" {
		in.seen(p, "", errNoTenant)
		return errNoTenant
	}
	call := semel.Call{
		Tenant: tenant, Principal: principal, Operation: p.operation, Key: p.key, Fingerprint: p.print, Wait: in.opts.Budget, Door: "whatsapp",
	}
	ans, err := in.engine.Do(ctx, call, func(_ context.Context, x semel.Execution) (semel.Result, error) {
		payload, err := json.Marshal(takenFrom(tenant, p))
		if err == nil {
			err = semel.Send(x, semel.Message{Name: "work", Destination: Destination, ContentType: "application/json", Payload: payload})
		}
		if err != nil {
			return semel.Result{}, semel.Aborted(err)
		}
		// A crash before the outcome is written leaves a lease that ends, and a
		// delivery without its 200. A crash after it leaves a due message in the
		// outbox, and WhatsApp's next delivery is a duplicate.
		return semel.Result{}, nil
	})
	in.seen(p, ans.Decision, err)
	// A conflict means that the message was taken before, with other content. There is
	// nothing more to take, and the conflict is in the evidence log.
	if ans.Decision == semel.Conflict {
		return nil
	}
	return err
}

func (in *Ingress) seen(p *part, d semel.Decision, err error) {
	if in.opts.Seen != nil {
		in.opts.Seen(Seen{Operation: p.operation, PhoneNumberID: p.phone, ID: p.id, Decision: d, Err: err})
	}
}

// taken is the content of a part's message in the outbox.
type taken struct {
	Operation     string          `json:"operation"`
	TenantID      string          `json:"tenant_id"`
	PhoneNumberID string          `json:"phone_number_id"`
	ReceivedAt    time.Time       `json:"received_at"`
	Fault         string          `json:"fault,omitempty"`
	Raw           json.RawMessage `json:"raw,omitempty"`
}

func takenFrom(tenant string, p *part) *taken {
	t := &taken{Operation: p.operation, TenantID: tenant, PhoneNumberID: p.phone, ReceivedAt: time.Now().UTC(), Fault: p.fault, Raw: p.raw}
	if p.fault == codeTooLong {
		t.Raw = nil // its digest is in the key
	}
	return t
}

func refuse(w http.ResponseWriter, status int, why string) { http.Error(w, why, status) }
