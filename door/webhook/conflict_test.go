package webhook

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// gateway is a source with the idempotency map's own key: two refunds of one payment
// share it.
const gateway = `
name: gateway
signature: {in: "{header:X-Sign}", encoding: hex}
events:
  - id: ["{body:transaction_id}", "{body:event_type}"]
    type: "{body:event_type}"
horizon: 1d
`

// parked are the messages that wait for an operator, with their records.
func (r *rig) parked() map[semel.ID]semel.Message {
	r.t.Helper()
	found := map[semel.ID]semel.Message{}
	for _, s := range r.seen {
		if s.parked == "" {
			continue
		}
		operation, digest, _ := strings.Cut(s.parked, "/")
		page, err := r.engine.Search(context.Background(), store.Query{Operation: operation, Digest: digest})
		if err != nil || len(page.Records) != 1 || len(page.Records[0].Outbox) != 1 {
			r.t.Fatalf("%v: %+v, %v", s.parked, page, err)
		}
		if rec := page.Records[0]; rec.Outbox[0].State == store.MessageParked {
			found[rec.ID] = rec.Outbox[0]
		}
	}
	return found
}

// TestAnotherEventWithTheKey: it is kept for somebody to decide, once for each content,
// and is handled if they say so.
func TestAnotherEventWithTheKey(t *testing.T) {
	clause.Proves(t, "MAP-HOOK.4")
	source, err := Load("gateway.yaml", []byte(gateway))
	if err != nil {
		t.Fatal(err)
	}
	const secret = "a gateway's secret"
	own := func(mode Mode, then AfterConflict) func(*Options) {
		return func(o *Options) {
			o.Source, o.Secrets, o.Mode, o.OnConflict, o.Name = source, []string{secret}, mode, then, "refunds"
		}
	}
	refund := func(t *testing.T, amount int) *Delivery {
		d := &Delivery{Header: http.Header{}, Body: fmt.Appendf(nil, `{"transaction_id":"tx_1","event_type":"refund","amount":%d}`, amount)}
		if err := source.Sign(d, secret, "", signedAt); err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, mode := range []Mode{Ack, Sync} {
		t.Run(string(mode), func(t *testing.T) {
			r := newRig(t, "stripe", own(mode, ""))
			r.want(refund(t, 5), http.StatusOK)
			for range 3 {
				r.want(refund(t, 7), http.StatusOK)
			}
			r.want(refund(t, 9), http.StatusOK)
			if r.work(); len(r.handled) != 1 || !strings.Contains(r.keys["webhook:gateway:tx_1:refund"], `:5}`) {
				t.Fatalf("handled %v", r.keys)
			}
			parked := r.parked()
			if len(parked) != 2 {
				t.Fatalf("%d are parked, want the refunds of 7 and of 9", len(parked))
			}
			for id, m := range parked {
				if id.Operation != "webhook.refunds" || m.Destination != "webhook.refunds" || m.NextAt != 0 || m.SettledAt == 0 || m.Failure == nil || m.Failure.Code != "conflict" {
					t.Errorf("%+v has %+v", id, m)
				}
				for _, s := range r.seen {
					if s.parked == id.String() && (s.receiver != "refunds" || !strings.Contains(m.Failure.Message, s.first) || !strings.Contains(m.Failure.Message, s.content)) {
						t.Errorf("%+v, and its failure is %+v", s, m.Failure)
					}
				}
				// An operator replays it.
				ctx := context.Background()
				if _, err := r.engine.Internal().SettleMessage(ctx, id, m.ID, store.MessageFinding{State: store.MessagePending, Replay: true}); err != nil {
					t.Fatal(err)
				}
				if err := r.receiver.Work(ctx, m.Payload); err != nil {
					t.Error(err)
				}
			}
			if len(r.handled) != 3 {
				t.Errorf("after they were replayed, %d events are handled", len(r.handled))
			}
			r.want(refund(t, 7), http.StatusOK)
			if r.work(); len(r.handled) != 3 || len(r.parked()) != 0 {
				t.Errorf("a delivery after that: %d are handled, %d parked", len(r.handled), len(r.parked()))
			}
		})
	}
	t.Run("drop", func(t *testing.T) {
		r := newRig(t, "stripe", own(Ack, DropConflict))
		r.want(refund(t, 5), http.StatusOK)
		r.want(refund(t, 7), http.StatusOK)
		if r.work(); len(r.handled) != 1 || len(r.parked()) != 0 {
			t.Errorf("%d handled, %d parked", len(r.handled), len(r.parked()))
		}
		if got := r.decisions(); !slices.Equal(got, []semel.Decision{semel.Conflict, semel.Execute}) {
			t.Errorf("%v", got)
		}
	})
	t.Run("no 2xx while it can't be kept", func(t *testing.T) {
		r := newRig(t, "stripe", own(Ack, ""), func(o *Options) { o.Evidence = "" })
		r.want(refund(t, 5), http.StatusOK)
		r.store.full = ":conflict:"
		r.want(refund(t, 5), http.StatusOK)
		r.want(refund(t, 7), http.StatusServiceUnavailable)
	})
	t.Run("nor for what is too long to be kept", func(t *testing.T) {
		r := newRig(t, "stripe", own(Sync, ""))
		r.want(refund(t, 5), http.StatusOK)
		d := refund(t, 7)
		d.Body = append(d.Body[:len(d.Body)-1], `,"note":"`+strings.Repeat("x", MaxEvent)+`"}`...)
		if err := source.Sign(d, secret, "", signedAt); err != nil {
			t.Fatal(err)
		}
		r.want(d, http.StatusRequestEntityTooLarge)
	})
}

// TestAUsedUpID: whoever has one delivery of a sender that doesn't sign its ids, and
// learns another id, doesn't have the event of that lost.
func TestAUsedUpID(t *testing.T) {
	r := newRig(t, "github")
	_, d := vectorOf(t, "github")
	as := func(kind string) *Delivery {
		c := &Delivery{Header: d.Header.Clone(), Body: d.Body}
		c.Header.Set("X-GitHub-Event", kind)
		return c
	}
	r.want(as("deployment"), http.StatusOK)
	r.want(as("issues"), http.StatusOK) // the sender's own
	if r.work(); len(r.handled) != 1 || len(r.parked()) != 1 {
		t.Errorf("%d are handled, %d parked", len(r.handled), len(r.parked()))
	}
}

// TestSubscriptionsOfOneTopic have an event each, under one event id.
func TestSubscriptionsOfOneTopic(t *testing.T) {
	for _, v := range []struct{ source, event, webhook string }{
		{"shopify", "X-Shopify-Event-Id", "X-Shopify-Webhook-Id"},
		{"shopify-events", "Shopify-Event-Id", "Shopify-Webhook-Id"},
	} {
		t.Run(v.source, func(t *testing.T) {
			r := newRig(t, v.source)
			all := resign(t, v.source, `{"id":1,"total":"403.00"}`, v.webhook, "w1")
			some := resign(t, v.source, `{"id":1}`, v.webhook, "w2")
			for range 3 {
				r.want(all, http.StatusOK)
				r.want(some, http.StatusOK)
			}
			// A duplicate by its event and its content.
			r.want(resign(t, v.source, `{"id":1,"total":"403.00"}`, v.webhook, "w3"), http.StatusOK)
			if r.work(); len(r.handled) != 2 {
				t.Errorf("handled %v", r.keys)
			}
			for id, n := range r.handled {
				if n != 1 {
					t.Errorf("%s was handled %d times", id, n)
				}
			}
			// The same subscription with other content is nobody's guess, whichever of
			// them came first.
			r.want(resign(t, v.source, `{"id":2}`, v.webhook, "w2"), http.StatusOK)
			r.want(resign(t, v.source, `{"id":3}`, v.webhook, "w1"), http.StatusOK)
			if r.work(); len(r.handled) != 2 || len(r.parked()) != 2 {
				t.Errorf("%d handled, %d parked", len(r.handled), len(r.parked()))
			}
		})
		t.Run(v.source+" without an event id", func(t *testing.T) {
			r := newRig(t, v.source)
			_, d := vectorOf(t, v.source)
			d.Header.Del(v.event)
			for range 2 {
				r.want(d, http.StatusOK)
			}
			if r.work(); len(r.handled) != 1 {
				t.Errorf("handled %v", r.keys)
			}
		})
	}
}

// TestWhatNoRuleFinds: what the sender signs reaches the handler or the log.
func TestWhatNoRuleFinds(t *testing.T) {
	r := newRig(t, "whatsapp")
	const status = `{"field":"message_template_status_update","value":{"event":"APPROVED","message_template_id":12}}`
	body := `{"object":"whatsapp_business_account","entry":[{"id":"waba","time":%d,"changes":[` + status + `,
		{"field":"messages","value":{"metadata":{"phone_number_id":"7"},"messages":[{"id":"wamid.A"}],"errors":[{"code":130429}]}},
		{"field":"messages","value":{"metadata":{"phone_number_id":"7"},"errors":[{"code":131000}]}},
		{"field":"smb_message_echoes","value":{"message_echoes":[{"id":"wamid.B"}]}}]}]}`
	for range 2 {
		r.want(resign(t, "whatsapp", fmt.Sprintf(body, 1)), http.StatusOK)
	}
	if r.work(); len(r.handled) != 5 {
		t.Errorf("%d are handled, want a template, a message, two errors and an echo: %v", len(r.handled), r.keys)
	}
	kinds := map[string]int{}
	for _, s := range r.seen {
		if s.Decision == semel.Execute {
			kinds[s.kind]++
		}
	}
	if kinds["message_template_status_update"] != 1 || kinds["message"] != 1 || kinds["error"] != 2 || kinds["smb_message_echoes"] != 1 {
		t.Errorf("they are of the types %v", kinds)
	}
	if !slices.Contains(r.bodies(), status) {
		t.Error("the handler doesn't get the change")
	}
	r.want(resign(t, "whatsapp", strings.Replace(fmt.Sprintf(body, 2), `"APPROVED"`, `"PAUSED"`, 1)), http.StatusOK)
	if r.work(); len(r.handled) != 7 {
		t.Errorf("%d are handled after other changes", len(r.handled))
	}
	r.seen = nil
	r.want(resign(t, "whatsapp", `{"object":"whatsapp_business_account","entry":[]}`), http.StatusOK)
	if len(r.seen) != 1 || r.seen[0].Err == nil || r.seen[0].receiver != "whatsapp" {
		t.Errorf("a delivery without an event is reported as %+v", r.seen)
	}
}

// bodies are those of the events that were handled.
func (r *rig) bodies() (list []string) {
	for _, body := range r.keys {
		list = append(list, body)
	}
	return list
}
