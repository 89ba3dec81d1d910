package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

func TestCardMachine(t *testing.T) {
	m := CardMachine()
	for events, want := range map[string]string{
		"authorized captured refunded": "applied applied applied: refunded",
		"captured":                     "applied: captured",
		"captured authorized":          "applied late: captured",
		"refunded":                     "waiting: created",
		"dispute_won":                  "waiting: created",
		"captured dispute_won disputed dispute_won":           "applied waiting applied applied: captured",
		"failed authorized failed":                            "applied applied late: authorized",
		"canceled captured":                                   "applied refused: canceled",
		"captured canceled":                                   "applied refused: captured",
		"canceled authorized":                                 "applied late: canceled",
		"canceled refunded":                                   "applied refused: canceled",
		"captured refunded captured partially_refunded":       "applied applied late late: refunded",
		"captured partially_refunded partially_refunded":      "applied applied applied: partially_refunded",
		"captured refunded refund_failed refunded":            "applied applied applied applied: refunded",
		"captured disputed dispute_lost refunded":             "applied applied applied late: charged_back",
		"captured disputed dispute_lost canceled dispute_won": "applied applied applied refused late: charged_back",
		"unheard_of": "refused: created",
	} {
		been, steps := []string{m.Initial}, []string{}
		for on := range strings.FieldsSeq(events) {
			to, step := m.step(been, on)
			if steps = append(steps, string(step)); step == Applied {
				been = append(slices.DeleteFunc(been, func(s string) bool { return s == to }), to)
			}
		}
		if got := strings.Join(steps, " ") + ": " + been[len(been)-1]; got != want {
			t.Errorf("%s: %s, want %s", events, got, want)
		}
	}
}

func TestWrongMachinesAreRefusedWithTheirPlace(t *testing.T) {
	const good = "name: m\ninitial: a\ntransitions:\n  - {on: go, from: a, to: b}\n"
	if _, err := LoadMachine("m.yaml", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for add, want := range map[string]string{
		"  - {on: go, from: a, to: c}\n":      "m.yaml:5:",
		"  - {on: x, from: nowhere, to: b}\n": "no payment gets into the state nowhere",
		"  - {on: x, from: a, into: b}\n":     "there is no setting \"into\"",
		"keep: 1h\n":                          "not between",
	} {
		if _, err := LoadMachine("m.yaml", []byte(good+add)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "m.yaml:5:") {
			t.Errorf("%q: %v, want %s", add, err, want)
		}
	}
}

// payments is a rig with Adyen's events and the machine of cards.
func payments(t *testing.T, mode Mode) *rig {
	return newRig(t, "adyen", func(o *Options) { o.Mode, o.Payments, o.Evidence = mode, CardMachine(), "" })
}

func adyenEvent(t *testing.T, psp, original, code string) *Delivery {
	return resign(t, "adyen", fmt.Sprintf(
		`{"notificationItems":[{"NotificationRequestItem":{"pspReference":%q,"originalReference":%q,"eventCode":%q,"success":"true"}}]}`, psp, original, code))
}

// TestPaymentStateMachine is what the idempotency map asks of gateways' webhooks: the key
// of gateway, transaction and kind of event, and no invalid transition.
func TestPaymentStateMachine(t *testing.T) {
	clause.Proves(t, "MAP-HOOK.2")
	t.Run("events in order, each once", func(t *testing.T) {
		r := payments(t, Ack)
		for _, d := range []*Delivery{adyenEvent(t, "P", "", "AUTHORISATION"), adyenEvent(t, "C", "P", "CAPTURE"), adyenEvent(t, "P", "", "AUTHORISATION")} {
			r.want(d, http.StatusOK)
		}
		if errs := r.work(); errors.Join(errs...) != nil || len(r.handled) != 2 {
			t.Errorf("%v, handled %v", errs, r.keys)
		}
		for _, key := range []string{"webhook:adyen:P:AUTHORISATION:true", "webhook:adyen:C:CAPTURE:true"} {
			if r.keys[key] == "" {
				t.Errorf("%s was not handled: %v", key, r.keys)
			}
		}
	})
	t.Run("an event that comes too early waits", func(t *testing.T) {
		r := payments(t, Ack)
		r.want(adyenEvent(t, "R", "P", "REFUND"), http.StatusOK)
		due := slices.Clone(r.due)
		if later, ok := errors.AsType[*Later](errors.Join(r.work()...)); !ok || later.After <= 0 {
			t.Error("it doesn't wait")
		}
		r.want(adyenEvent(t, "C", "P", "CAPTURE"), http.StatusOK)
		r.due = append(r.due, due...)
		if errs := r.work(); errors.Join(errs...) != nil || len(r.handled) != 2 {
			t.Errorf("%v, handled %v", errs, r.keys)
		}
	})
	t.Run("an invalid transition is refused, and stays refused", func(t *testing.T) {
		r := payments(t, Ack)
		r.want(adyenEvent(t, "X", "P", "CANCELLATION"), http.StatusOK)
		r.want(adyenEvent(t, "C", "P", "CAPTURE"), http.StatusOK)
		due := slices.Clone(r.due)
		for range 2 {
			errs := r.work()
			if errs[0] != nil || len(r.handled) != 1 {
				t.Errorf("%v, handled %v", errs, r.keys)
			}
			wantCode(t, errs[1], CodeTransition)
			r.due = due
		}
	})
	t.Run("a retry gets the decision that was made", func(t *testing.T) {
		r := payments(t, Ack)
		var got []Payment
		r.receiver.opts.Handle = func(_ context.Context, e *Event) error {
			if got = append(got, *e.Payment); len(got) == 1 {
				return errors.New("no")
			}
			return nil
		}
		r.want(adyenEvent(t, "C", "P", "CAPTURE"), http.StatusOK)
		r.due = append(r.due, r.due...)
		r.work()
		if want := (Payment{ID: "P", On: "captured", Step: Applied, State: "captured", Sequence: 1}); !slices.Equal(got, []Payment{want, want}) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("the same while the sender waits", func(t *testing.T) {
		r := payments(t, Sync)
		r.want(adyenEvent(t, "R", "P", "REFUND"), http.StatusServiceUnavailable)
		r.want(adyenEvent(t, "C", "P", "CAPTURE"), http.StatusOK)
		r.want(adyenEvent(t, "R", "P", "REFUND"), http.StatusOK)
		r.want(adyenEvent(t, "X", "P", "CANCELLATION"), http.StatusOK)
		if len(r.handled) != 2 || r.keys["webhook:adyen:X:CANCELLATION:true"] != "" {
			t.Errorf("handled %v", r.keys)
		}
	})
	t.Run("two that read the same state are decided one after the other", func(t *testing.T) {
		r := payments(t, Sync)
		r.store.meet = &sync.WaitGroup{}
		r.store.meet.Add(2)
		var group sync.WaitGroup
		for _, code := range []string{"CAPTURE", "CANCELLATION"} {
			group.Go(func() { r.want(adyenEvent(t, code, "P", code), http.StatusOK) })
		}
		if group.Wait(); len(r.handled) != 1 {
			t.Errorf("handled %v", r.keys)
		}
	})
	t.Run("of two that exclude each other one is applied, however they come", func(t *testing.T) {
		r := payments(t, Sync)
		for i := range 30 {
			p := fmt.Sprint("P", i)
			var group sync.WaitGroup
			for _, code := range []string{"CAPTURE", "CANCELLATION"} {
				for range 3 {
					group.Go(func() { r.want(adyenEvent(t, code+p, p, code), http.StatusOK) })
				}
			}
			group.Wait()
			if len(r.handled) != i+1 {
				t.Fatalf("%d were handled of payment %d", len(r.handled)-i, i)
			}
		}
		for id, n := range r.handled {
			if n != 1 {
				t.Errorf("%s was handled %d times", id, n)
			}
		}
	})
}

func TestPaymentsOfStripe(t *testing.T) {
	r := newRig(t, "stripe", func(o *Options) { o.Mode, o.Payments, o.Evidence = Sync, CardMachine(), "" })
	var got []string
	r.receiver.opts.Handle = func(_ context.Context, e *Event) error {
		if p := e.Payment; p != nil {
			got = append(got, fmt.Sprintf("%s %s %s %d", p.ID, p.Step, p.State, p.Sequence))
		} else {
			got = append(got, "none")
		}
		return nil
	}
	for i, event := range []string{
		`"payment_intent.succeeded","data":{"object":{"id":"pi_1"}}`,
		`"payment_intent.amount_capturable_updated","data":{"object":{"id":"pi_1"}}`,
		`"charge.refunded","data":{"object":{"id":"ch_1","payment_intent":"pi_1","refunded":false}}`,
		`"charge.refunded","data":{"object":{"id":"ch_1","payment_intent":"pi_1","refunded":true}}`,
		`"charge.refunded","data":{"object":{"id":"ch_2","payment_intent":null,"refunded":true}}`,
		`"customer.created","data":{"object":{"id":"cus_1"}}`,
	} {
		r.want(resign(t, "stripe", fmt.Sprintf(`{"id":"evt_%d","type":%s}`, i, event)), http.StatusOK)
	}
	want := []string{"pi_1 applied captured 1", "pi_1 late captured 1", "pi_1 applied partially_refunded 2", "pi_1 applied refunded 3", "none", "none"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// What an event did to its payment goes with its record, and the payment with the last of them.
// Nothing is applied to either afterwards, on any node.
func TestErasedEventsLeaveTheirPayment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := payments(t, Sync)
		captured, disputed := adyenEvent(t, "C", "P", "CAPTURE"), adyenEvent(t, "D", "P", "NOTIFICATION_OF_CHARGEBACK")
		for _, d := range []*Delivery{captured, disputed, adyenEvent(t, "W", "P", "CHARGEBACK_REVERSED"), adyenEvent(t, "C2", "Q", "CAPTURE")} {
			r.want(d, http.StatusOK)
		}
		kept := func() string {
			page, err := r.engine.Search(t.Context(), store.Query{Operation: store.PaymentOperation + "card"})
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			for _, rec := range page.Records {
				fmt.Fprintf(&text, "%s %s\n", rec.ID.Key, rec.Result.Data)
			}
			return text.String()
		}
		taken := func(key string) *semel.Record {
			page, err := r.engine.Search(t.Context(), store.Query{Attributes: store.Attributes{store.AttributePayment: "card/adyen:P"}, KeyPrefix: "webhook:adyen:" + key})
			if err != nil || len(page.Records) != 1 {
				t.Fatalf("%s: %+v, %v", key, page, err)
			}
			return &page.Records[0]
		}
		erase := func(key string) {
			id := taken(key).ID
			if event := store.EventOf(id); !strings.Contains(kept(), event) {
				t.Fatalf("%s is not in %s", event, kept())
			}
			if err := r.engine.Purge(t.Context(), id, semel.Removal{Reason: "asked for", EraseEvidence: true}); err != nil {
				t.Fatal(err)
			}
			if event := store.EventOf(id); strings.Contains(kept(), event) {
				t.Errorf("%s is in %s", event, kept())
			}
		}
		expires := func() store.Instant {
			rec, err := r.store.Get(t.Context(), store.PaymentOf("acme", "card/adyen:P"))
			if err != nil {
				t.Fatal(err)
			}
			return rec.ExpiresAt
		}
		before := expires()
		<-time.After(time.Hour)
		erase("D:")
		if d := expires().Sub(before).Abs(); d > time.Minute {
			t.Errorf("the payment is kept %v longer or shorter", d)
		}
		if !strings.Contains(kept(), "adyen:P") {
			t.Errorf("after one event was erased: %s", kept())
		}
		another, err := semel.New(r.store, &semel.Options{Witness: r.log})
		if err != nil {
			t.Fatal(err)
		}
		defer another.Close(context.Background())
		opts := r.receiver.opts
		if r.receiver, err = New(another, opts); err != nil {
			t.Fatal(err)
		}
		late := func(key string, d *Delivery) {
			t.Helper()
			handled := r.tries
			r.want(d, http.StatusOK)
			if rec := taken(key); r.tries != handled || rec.Failure == nil || rec.Failure.Code != string(CodeErased) {
				t.Errorf("an event that came late: handled %v, %+v", r.keys, rec.Failure)
			}
		}
		late("D:", disputed)
		erase("C:")
		erase("W:")
		late("C:", captured)
		late("X:", adyenEvent(t, "X", "P", "CANCELLATION"))
		if left := kept(); strings.Contains(left, "adyen:P") || !strings.Contains(left, "adyen:Q") {
			t.Errorf("after all events were erased: %s", left)
		}
		<-time.After(32 * 24 * time.Hour) // as long as an erasure is known
		r.want(adyenEvent(t, "X2", "P", "CANCELLATION"), http.StatusOK)
		if !strings.Contains(kept(), "adyen:P") {
			t.Errorf("much later: %s", kept())
		}
	})
}
