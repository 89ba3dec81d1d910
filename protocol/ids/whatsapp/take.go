package whatsapp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/semelhq/semel"
)

// takeAtOnce is how many parts of one batch are taken at a time. Stores commit what
// comes together in one step.
const takeAtOnce = 16

// principal is who delivers messages, whoever wrote them: were that the sender, a
// message that comes again as somebody else's would not be met.
const principal = "whatsapp"

// ServeHTTP is the webhook:
//
//	GET   the handshake: 200 with the challenge, or 403
//	POST  200 when every message of the batch is taken; 401 without a signature, 403
//	      with a wrong one, 413 over [MaxBody], 400 for what is no webhook, and 503
//	      where a message was not taken, so that the batch comes again
//
// Nothing is read out of a body, and nothing stored, before its signature was found
// right.
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
	sum, given := signature(r.Header)
	if !given {
		refuse(w, http.StatusUnauthorized, "the signature is missing")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		refuse(w, http.StatusRequestEntityTooLarge, "the body is too long")
		return
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "the body broke off")
		return
	}
	if !in.signed(sum, body) {
		refuse(w, http.StatusForbidden, "the signature is wrong")
		return
	}
	parts, err := split(body, in.opts.Status != nil)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	// A sender that hangs up does not undo what it has delivered.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), in.opts.Budget)
	defer cancel()
	if !in.takeAll(ctx, parts) {
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "not all of it is taken: deliver it again")
		return
	}
	w.WriteHeader(http.StatusOK)
}

// takeAll takes the parts of a batch, each for itself. It reports whether all are
// taken, and false when ctx is done first: what has begun goes on, within the time
// that the engine gives its store, and another delivery finds it.
func (in *Ingress) takeAll(ctx context.Context, parts []part) bool {
	results := make(chan bool, len(parts))
	next := make(chan *part)
	for range min(takeAtOnce, len(parts)) {
		go func() {
			for p := range next {
				results <- in.take(ctx, p)
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
	all := true
	for range parts {
		select {
		case taken := <-results:
			all = all && taken
		case <-ctx.Done():
			return false
		}
	}
	return all
}

// errNobody is why a part was not taken.
var errNobody = errors.New("the phone number is nobody's")

// take makes one part durable, once. A duplicate that comes at the same time waits
// for that.
func (in *Ingress) take(ctx context.Context, p *part) bool {
	tenant, ok := in.opts.Tenant(p.phone)
	if !ok || tenant == "" {
		in.seen(p, "", errNobody)
		return false
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
		// delivery without its 200. A crash after it leaves a message in the outbox
		// that is due, and WhatsApp delivers what is a duplicate then.
		return semel.Result{}, nil
	})
	in.seen(p, ans.Decision, err)
	// A message that has another content now was taken before. There is nothing more
	// to take, and the conflict is in the evidence log.
	return err == nil || ans.Decision == semel.Conflict
}

func (in *Ingress) seen(p *part, d semel.Decision, err error) {
	if in.opts.Seen != nil {
		in.opts.Seen(Seen{Operation: p.operation, PhoneNumberID: p.phone, ID: p.id, Decision: d, Err: err})
	}
}

// taken is what the outbox has of a part.
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
