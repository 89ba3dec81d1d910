package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel"
	semelclient "github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/rig/stage"
)

// Orders with these prefixes give the dashboard something to show.
const (
	// rushPrefix: the charge takes long enough for copies to wait for it.
	rushPrefix = "rush-"
	rushDelay  = 300 * time.Millisecond
	// declinePrefix: the bank refuses the charge for good.
	declinePrefix = "decline-"
)

// The refunds that lose their answers.
const (
	heldRefund    = "refund:1"
	settledRefund = "refund:2"
)

const (
	refundOperation  = "payments.refund"
	deliverOperation = "shop.deliver"
)

// trouble answers an order that is not to be charged, and reports whether it did.
func trouble(w http.ResponseWriter, o order) bool {
	if !strings.HasPrefix(o.Order, declinePrefix) {
		return false
	}
	writeJSON(w, http.StatusUnprocessableEntity, map[string]string{"error": "insufficient_funds"})
	return true
}

// serveTroubles are the parts of the toy service that only the dashboard needs.
func (p *provider) serveTroubles(mux *http.ServeMux) {
	mux.HandleFunc("POST /carts", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		p.carts++
		down := p.carts%3 != 0
		p.mu.Unlock()
		if down {
			writeJSON(w, http.StatusInternalServerError, map[string]string{"error": "the stock is being counted"})
			return
		}
		writeJSON(w, http.StatusCreated, map[string]string{"cart": "c-1"})
	})
	mux.HandleFunc("POST /refunds", func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler) // breaks the connection: nobody ever knows whether it was refunded
	})
	mux.HandleFunc("POST /hooks/mail", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST /hooks/warehouse", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
}

// troubles gives the dashboard what an operator has to do with, after the restart of Semel:
// calls that wait for a running one, a call that is held and one that an operator has
// settled, attempts that fail, a key that changes between retries, effects, a message that
// nobody takes, and work that goes on.
func (s *story) troubles(ctx context.Context) error {
	s.screen.chapter("What operators see")
	for _, play := range []func(context.Context) error{s.rush, s.refunds, s.retries, s.deliver} {
		if err := play(ctx); err != nil {
			return err
		}
	}
	s.screen.line("a rush on one order, an answer that vanished, failed attempts, a key that changed,")
	s.screen.line("a message that nobody takes, and a delivery that is under way")
	return nil
}

// rush sends copies of an order while it's charged: they wait for the outcome. Others come
// later, and one has changed.
func (s *story) rush(ctx context.Context) error {
	o := s.newOrder(rushPrefix + "1")
	wait := keyed(keyOf(o))
	wait.Set("Prefer", "wait=10")
	var sent sync.WaitGroup
	errs := make([]error, 9)
	for i := range errs {
		sent.Go(func() { _, errs[i] = s.client.post(ctx, s.guard.URL+"/charges", wait, document(o)) })
		stage.Pause(ctx, 25*time.Millisecond)
	}
	sent.Wait()
	for range 3 {
		_, err := s.client.charge(ctx, s.guard.URL, keyOf(o), o)
		errs = append(errs, err)
		stage.Pause(ctx, 40*time.Millisecond)
	}
	changed := o
	changed.Amount++
	_, err := s.client.charge(ctx, s.guard.URL, keyOf(o), changed)
	return errors.Join(append(errs, err)...)
}

// refunds loses the answers to two of them, and says how one ended.
func (s *story) refunds(ctx context.Context) error {
	for _, key := range []string{heldRefund, settledRefund} {
		o := s.newOrder("control-01")
		for range 2 {
			if _, err := s.client.post(ctx, s.guard.URL+"/refunds", keyed(key), document(o)); err != nil {
				return err
			}
		}
	}
	c, err := semelclient.New(s.guard.URL, &semelclient.Options{AdminURL: s.guard.AdminURL})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Settle(ctx, semel.ID{Operation: refundOperation, Key: settledRefund}, semel.Settlement{Outcome: semel.DispositionAborted},
		"asked the bank by telephone: it has no such refund")
	return err
}

// retries repeats calls as clients do: after failures, after a refusal, and under a new key.
func (s *story) retries(ctx context.Context) error {
	for range 4 {
		if _, err := s.client.post(ctx, s.guard.URL+"/carts", keyed("cart:1"), []byte(`{"items":3}`)); err != nil {
			return err
		}
	}
	declined, twice := s.newOrder(declinePrefix+"1"), s.newOrder("twice-1")
	for _, send := range []struct {
		key string
		order
	}{{keyOf(declined), declined}, {keyOf(declined), declined}, {keyOf(twice), twice}, {keyOf(twice) + "-again", twice}} {
		if _, err := s.client.charge(ctx, s.guard.URL, send.key, send.order); err != nil {
			return err
		}
	}
	return nil
}

// deliver completes a call over the execution API, with effects and messages, and leaves
// another one under way.
func (s *story) deliver(ctx context.Context) error {
	c, err := semelclient.New(s.guard.URL, &semelclient.Options{Token: s.token})
	if err != nil {
		return err
	}
	defer c.Close()
	call := func(key string) semel.Call {
		return semel.Call{Operation: deliverOperation, Key: key, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(key))}
	}
	_, err = c.Do(ctx, call("delivery:1"), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		for _, effect := range []string{"reserve stock", "print label"} {
			if _, err := semel.Effect(ctx, x, effect, func(ctx context.Context, key string) (string, error) {
				stage.Pause(ctx, 30*time.Millisecond)
				return key, nil
			}); err != nil {
				return semel.Result{}, err
			}
		}
		for name, to := range map[string]string{"parcel.ready": "mail", "parcel.pick": "warehouse"} {
			if err := semel.Send(x, semel.Message{Name: name, Destination: to, ContentType: jsonType, Payload: []byte(`{"parcel":"p-1"}`)}); err != nil {
				return semel.Result{}, err
			}
		}
		return semel.Result{Data: json.RawMessage(`{"parcel":"p-1"}`)}, nil
	})
	if err != nil {
		return err
	}
	// Its worker is slow: nobody ends it, and its lease lasts for an hour.
	b, err := c.Begin(ctx, call("delivery:2"))
	if err == nil && b.Decision != semel.Execute {
		err = fmt.Errorf("delivery:2 got %s", b.Decision)
	}
	if err != nil {
		return err
	}
	_, err = c.StartEffect(ctx, b.Execution, "reserve stock")
	return err
}
