package demo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/stage"
)

// ProviderCommand is the hidden command under which the program runs itself as
// the payment service.
const ProviderCommand = "demo-provider"

// Charge is one charge in the payment service's ledger, and its answer to the client.
type Charge struct {
	ID       string `json:"id"`
	Order    string `json:"order"`
	Amount   int    `json:"amount"` // in the smallest unit of the currency
	Currency string `json:"currency"`
	// Reference is the idempotency key of the charge, if any. This service keeps it for
	// enquiries, and charges again nevertheless.
	Reference string `json:"reference,omitempty"`
}

// order is the body of POST /charges.
type order struct {
	Order    string `json:"order"`
	Amount   int    `json:"amount"`
	Currency string `json:"currency"`
}

// lingers reports whether Semel is killed while it waits for the order's answer.
func (o order) lingers() bool { return strings.HasPrefix(o.Order, crashPrefix) }

const (
	keyHeader = "Idempotency-Key"
	// crashPrefix marks orders with a first charge that takes crashDelay to answer, long enough to
	// kill the waiting process.
	crashPrefix = "crash-"
	crashDelay  = 10 * time.Second
	minDelay    = 20 * time.Millisecond
	maxDelay    = 50 * time.Millisecond
)

// provider is the toy payment service. It charges as often as it is asked to.
//
//	POST /charges                      charge; answers 201 after 20 to 50 ms
//	GET  /charges?order=&reference=    the ledger, or the part that matches
//	GET  /outcome?key=                 whether a charge happened, for its guard
//	POST /refunds                      never answers
//	POST /carts                        a cart, at the third try
//	POST /hooks/mail, /hooks/warehouse receivers of messages; the warehouse refuses them
type provider struct {
	mu     sync.Mutex
	rng    *rand.Rand
	ledger []Charge
	carts  int // tries to make one
}

func newProvider(seed uint64) (*provider, *http.ServeMux) {
	p := &provider{rng: rand.New(rand.NewPCG(seed, 2))}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", p.charge)
	mux.HandleFunc("GET /charges", p.list)
	mux.HandleFunc("GET /outcome", p.outcome)
	p.serveTroubles(mux)
	return p, mux
}

func (p *provider) charge(w http.ResponseWriter, r *http.Request) {
	if o, ok := readOrder(w, r); ok && !trouble(w, o) {
		p.chargeAs(w, r, o, r.Header.Get(keyHeader), func(c Charge) (int, any) { return http.StatusCreated, c })
	}
}

// chargeAs charges, and answers in the form of a door.
func (p *provider) chargeAs(w http.ResponseWriter, r *http.Request, o order, reference string, answer func(Charge) (int, any)) {
	c, delay := p.book(o, reference)
	// The charge is booked; the answer comes later.
	stage.Pause(r.Context(), delay)
	status, doc := answer(c)
	writeJSON(w, status, doc)
}

// book adds a charge to the ledger and returns how long its answer takes.
func (p *provider) book(o order, reference string) (Charge, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delay := minDelay + time.Duration(p.rng.Int64N(int64(maxDelay-minDelay)))
	if o.lingers() && len(match(p.ledger, o.Order, "")) == 0 {
		delay = crashDelay
	}
	if strings.HasPrefix(o.Order, rushPrefix) {
		delay = rushDelay
	}
	c := Charge{ID: fmt.Sprintf("ch_%04d", len(p.ledger)+1), Order: o.Order, Amount: o.Amount, Currency: o.Currency, Reference: reference}
	p.ledger = append(p.ledger, c)
	return c, delay
}

func (p *provider) list(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	charges := match(p.ledger, r.FormValue("order"), r.FormValue("reference"))
	p.mu.Unlock()
	writeJSON(w, http.StatusOK, charges)
}

// outcome answers a guard that never got the answer to a charge. A charge that isn't in
// the ledger may still be on its way.
func (p *provider) outcome(w http.ResponseWriter, r *http.Request) {
	f := semelproxy.Finding{Outcome: "unknown"}
	if key := r.FormValue("key"); key != "" {
		p.mu.Lock()
		known := match(p.ledger, "", key)
		p.mu.Unlock()
		if len(known) > 0 {
			f = semelproxy.Finding{Outcome: "completed", Status: http.StatusCreated, Headers: http.Header{"Content-Type": {jsonType}}, Body: document(known[0])}
		}
	}
	writeJSON(w, http.StatusOK, f)
}

// match selects the charges of an order and with a reference; empty selects all.
func match(ledger []Charge, order, reference string) []Charge {
	found := []Charge{}
	for _, c := range ledger {
		if (order == "" || c.Order == order) && (reference == "" || c.Reference == reference) {
			found = append(found, c)
		}
	}
	return found
}

// readOrder reads the body of a charge, or answers 400. An amount is enough.
func readOrder(w http.ResponseWriter, r *http.Request) (order, bool) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Amount <= 0 {
		http.Error(w, "a charge needs an amount", http.StatusBadRequest)
		return o, false
	}
	o.Order, o.Currency = cmp.Or(o.Order, "unnamed"), cmp.Or(o.Currency, "EUR")
	return o, true
}

const jsonType = "application/json"

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	// The client may be gone.
	_, _ = w.Write(document(v))
}

// document is v as JSON. All values here have a JSON form.
func document(v any) []byte {
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(v)
	return b.Bytes()
}

// ServeProvider runs the payment service on a free port of the loopback
// interface, prints its address to stdout, and serves until stdin ends or ctx is done. The
// parent handles an interrupt of the terminal, and ends its children.
func ServeProvider(ctx context.Context, seed uint64, stdin io.Reader, stdout io.Writer) error {
	_, mux := newProvider(seed)
	return serve(ctx, mux, stdin, stdout)
}

func serve(ctx context.Context, handler http.Handler, stdin io.Reader, stdout io.Writer) error {
	signal.Ignore(os.Interrupt)
	return stage.Serve(ctx, stdin, stdout, func(ctx context.Context, l net.Listener) error {
		server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}
