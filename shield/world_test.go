package shield_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/shield"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// provider is a payment provider that notes what it gets.
type provider struct {
	*httptest.Server
	mu     sync.Mutex
	keys   []string
	bodies []string
	answer func(w http.ResponseWriter, r *http.Request)
}

func newProvider(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *provider {
	p := &provider{answer: answer}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			p.mu.Lock()
			p.keys, p.bodies = append(p.keys, r.Header.Get("Idempotency-Key")), append(p.bodies, string(body))
			p.mu.Unlock()
		}
		p.answer(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) got() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.keys...)
}

func status(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/charges/9")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, `{"id":9}`)
	}
}

// engine knows one operation, "pay", of class I3.
func engine(t *testing.T, reconcile semel.Reconciler) (*semel.Engine, *memstore.Store) {
	t.Helper()
	st := memstore.New()
	op := semel.Operation{
		Name: "pay", Class: semel.Shielded, Shields: []semel.Shield{semel.ShieldProviderKey, semel.ShieldLedger},
		Effects: []string{"charge"}, OnFailure: semel.RetryFailure, Reconcile: reconcile,
	}
	if reconcile != nil {
		op.Shields = append(op.Shields, semel.ShieldReconcile)
	}
	e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{op}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	return e, st
}

var payment = semel.Call{Tenant: "t", Principal: "p", Operation: "pay", Key: "k"}

func paymentID() semel.ID { return semel.ID{Tenant: "t", Principal: "p", Operation: "pay", Key: "k"} }

func post(t *testing.T, url, media, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", media)
	return r
}

// pay runs the call with one effect.
func pay(t *testing.T, e *semel.Engine, c *shield.Client, url string) (got *shield.Response, ans semel.Answer, err error) {
	t.Helper()
	ans, err = e.Do(t.Context(), payment, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		r, err := c.Do(ctx, x, "charge", post(t, url, "application/json", `{"amount":1}`))
		if err != nil {
			return semel.Result{}, err
		}
		got = r
		return semel.Result{Data: r.Body}, nil
	})
	return got, ans, err
}

func wantCode(t *testing.T, err error, code semel.Code) {
	t.Helper()
	if !errors.Is(err, &semel.Error{Code: code}) {
		t.Fatalf("got %v, want code %s", err, code)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// settleNow lets the engine look after what is held, after so long, and returns the
// record once the reconciler, which is asked beside the sweep, has answered.
func settleNow(t *testing.T, e *semel.Engine, st *memstore.Store, after time.Duration) semel.Record {
	t.Helper()
	st.Advance(after)
	op, _ := e.Internal().Operation("pay")
	changed := make(chan store.Revision, 1) // by the answer; zero if it says nothing
	ask := op.Reconcile
	op.Reconcile = func(ctx context.Context, held semel.Record) (semel.Settlement, error) {
		s, err := ask(ctx, held)
		if err != nil || s.Outcome == 0 && len(s.Effects) == 0 {
			held.Revision = store.Revision{}
		}
		changed <- held.Revision
		return s, err
	}
	must(t, e.Register(op))
	n, err := e.Sweep(t.Context())
	must(t, err)
	var from store.Revision
	if n.Reconciled > 0 {
		from = <-changed
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		rec, err := e.Lookup(t.Context(), paymentID())
		if must(t, err); rec.Revision != from {
			return rec
		}
		<-tick.C
	}
}
