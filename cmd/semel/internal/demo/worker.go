package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/transport/semelhttp"
)

const (
	replayedHeader = "Idempotency-Replayed"
	chargeEffect   = "charge"
	// lease is short, so that a killed worker is noticed soon.
	lease = 2 * time.Second
	// sweepEvery leaves a held record visible for a moment before the payment
	// service is asked about it.
	sweepEvery = 400 * time.Millisecond
	// settleAfter is how long a charge that the payment service does not know
	// of may still be on its way there.
	settleAfter = 5 * time.Second
)

// worker is the twin of the payment service: the same API, guarded, in front of
// it.
type worker struct {
	provider string
	http     http.Client
}

// runWorker serves the twin until stdin ends or ctx is done. Unguarded it is the
// same without Semel.
func runWorker(ctx context.Context, c Child, stdin io.Reader, stdout io.Writer) error {
	w := &worker{provider: c.Provider, http: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: orders}}}
	mux := http.NewServeMux()
	if c.Unguarded {
		mux.HandleFunc("POST /charges", w.charge)
		return serve(ctx, mux, stdin, stdout)
	}
	store, err := pebblestore.Open(c.Dir, nil)
	if err != nil {
		return err
	}
	engine, err := semel.New(store, nil)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	mux.Handle("POST /charges", guard.Handler(semelhttp.Route{Operation: w.operation()}, http.HandlerFunc(w.charge)))
	sweeping, cancel := context.WithCancel(context.WithoutCancel(ctx))
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		_ = engine.Run(sweeping, sweepEvery) // it ends when the server has
	}()
	err = serve(ctx, mux, stdin, stdout)
	cancel()
	<-swept
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return errors.Join(err, engine.Close(closing), store.Close())
}

// operation is the policy: nothing outside happens but the one charge, which is
// in the ledger, carries a derived key, and can be asked for at the payment
// service.
func (w *worker) operation() semel.Operation {
	return semel.Operation{
		Name: "payments.charge", Class: semel.Shielded, Financial: true, Lease: lease,
		Shields:   []semel.Shield{semel.ShieldProviderKey, semel.ShieldLedger, semel.ShieldReconcile},
		Effects:   []string{chargeEffect},
		Reconcile: w.reconcile, ReconcileEvery: time.Second,
	}
}

// charge is the handler that the guard protects.
func (w *worker) charge(rw http.ResponseWriter, r *http.Request) {
	o, ok := readOrder(rw, r)
	if !ok {
		return
	}
	c, err := w.chargeOnce(r.Context(), o)
	if err != nil {
		http.Error(rw, "the payment service gave no answer", http.StatusBadGateway)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(http.StatusCreated)
	// The client may be gone; the guard records the answer all the same.
	_, _ = rw.Write(receipt(c))
}

// chargeOnce orders the charge through the ledger of the attempt. Without a
// guard there is none, and it is ordered as it is.
func (w *worker) chargeOnce(ctx context.Context, o order) (Charge, error) {
	attempt, guarded := semelhttp.Attempt(ctx)
	if !guarded {
		return w.order(ctx, o, "")
	}
	return semel.Effect(ctx, attempt, chargeEffect, func(ctx context.Context, key string) (Charge, error) {
		return w.order(ctx, o, key)
	})
}

// order calls the payment service. A connection that was refused proves that
// nothing was charged; everything else that goes wrong proves nothing.
func (w *worker) order(ctx context.Context, o order, key string) (Charge, error) {
	req, err := newCharge(ctx, w.provider, key, o)
	if err != nil {
		return Charge{}, semel.Aborted(err)
	}
	var c Charge
	switch err := w.do(req, http.StatusCreated, &c); {
	case errors.Is(err, syscall.ECONNREFUSED):
		return c, semel.Aborted(err)
	default:
		return c, err
	}
}

// do sends a request and reads the JSON of the one status that is expected.
func (w *worker) do(req *http.Request, status int, v any) error {
	resp, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != status {
		return fmt.Errorf("the payment service answered %s", resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

// reconcile asks the payment service what became of a charge whose worker died.
// What it knows is answered as the handler would have. A charge it does not know
// of after a while did not happen, and the next delivery may run.
func (w *worker) reconcile(ctx context.Context, held semel.Record) (semel.Settlement, error) {
	var s semel.Settlement
	for _, ef := range held.Effects {
		if ef.State != semel.EffectStarted {
			continue
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.provider+"/charges?"+url.Values{"reference": {ef.Key}}.Encode(), nil)
		if err != nil {
			return s, err
		}
		var known []Charge
		if err := w.do(req, http.StatusOK, &known); err != nil {
			return s, err
		}
		switch {
		case len(known) > 0:
			data, err := json.Marshal(known[0])
			if err != nil {
				return s, err
			}
			s.Effects = append(s.Effects, semel.EffectFinding{Name: ef.Name, State: semel.EffectConfirmed, Result: semel.Result{Data: data}})
			s.Outcome = semel.DispositionCompleted
			s.Result = semelhttp.NewResult(http.StatusCreated, http.Header{"Content-Type": {"application/json"}}, receipt(known[0]))
		case held.UpdatedAt.Sub(ef.StartedAt) > settleAfter:
			s.Effects = append(s.Effects, semel.EffectFinding{Name: ef.Name, State: semel.EffectRefuted})
		}
	}
	return s, nil
}

// receipt is the body of the answer to a charge.
func receipt(c Charge) []byte {
	var b bytes.Buffer
	// A Charge has nothing that JSON can't hold, and a buffer takes everything.
	_ = json.NewEncoder(&b).Encode(c)
	return b.Bytes()
}
