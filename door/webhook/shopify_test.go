package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

// shop is what a program does with Shopify's events: one effect of each use case.
type shop struct {
	mu                         sync.Mutex
	orders, payments, profiles map[string]int
	stock                      map[string]int // changes of an item in a place
}

// handle is the handler that the page about webhooks describes.
func (s *shop) handle(_ context.Context, e *Event) error {
	var body struct {
		ID          json.Number `json:"id"`
		OrderID     json.Number `json:"order_id"`
		Status      string      `json:"status"`
		InventoryID json.Number `json:"inventory_item_id"`
		LocationID  json.Number `json:"location_id"`
	}
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Type {
	case "orders/create":
		s.orders[string(body.ID)]++
	case "orders/paid":
		s.payments[string(body.ID)]++
	case "order_transactions/create":
		if body.Status == "success" {
			s.payments[string(body.OrderID)]++
		}
	case "inventory_levels/update":
		s.stock[string(body.InventoryID+"@"+body.LocationID)]++
	case "customers/update":
		s.profiles[string(body.ID)]++
	}
	return nil
}

// TestShopifyUseCases: orders, payment confirmations, inventory and customers are each handled
// once, however often and at the same time they are delivered. One action of a merchant may
// give all of them the same event id.
func TestShopifyUseCases(t *testing.T) {
	clause.Proves(t, "MAP-HOOK.3")
	for _, mode := range []Mode{Ack, Sync} {
		t.Run(string(mode), func(t *testing.T) {
			s := &shop{orders: map[string]int{}, payments: map[string]int{}, stock: map[string]int{}, profiles: map[string]int{}}
			r := newRig(t, "shopify", func(o *Options) { o.Mode, o.Handle, o.Evidence = mode, s.handle, "" })
			send := func(topic, event, webhook, body string) {
				r.want(resign(t, "shopify", body, "X-Shopify-Topic", topic, "X-Shopify-Event-Id", event, "X-Shopify-Webhook-Id", webhook), http.StatusOK)
			}
			all := []struct{ topic, body string }{
				{"orders/create", `{"id":820982911946154508,"total_price":"403.00"}`},
				{"orders/paid", `{"id":820982911946154508,"financial_status":"paid"}`},
				{"order_transactions/create", `{"id":389404469,"order_id":450789469,"kind":"sale","status":"success","gateway":"shopify_payments"}`},
				{"inventory_levels/update", `{"inventory_item_id":808950810,"location_id":655441491,"available":6}`},
				{"customers/update", `{"id":207119551,"email":"jon@example.com"}`},
			}
			for round := range 3 {
				var group sync.WaitGroup
				for _, event := range all {
					for try := range 3 { // of one subscription, and of others to the same topic
						group.Go(func() { send(event.topic, "evt-one-action", fmt.Sprintf("%s-%d", event.topic, try), event.body) })
					}
				}
				group.Wait()
				for _, err := range r.work() {
					if err != nil {
						t.Error(round, err)
					}
				}
			}
			// Another change of the same thing is another event.
			send("inventory_levels/update", "evt-later", "w", `{"inventory_item_id":808950810,"location_id":655441491,"available":5}`)
			send("customers/update", "evt-later", "w", `{"id":207119551,"email":"jon@example.org"}`)
			r.work()
			for _, c := range []struct {
				name      string
				got, want map[string]int
			}{
				{"orders", s.orders, map[string]int{"820982911946154508": 1}},
				{"payments", s.payments, map[string]int{"820982911946154508": 1, "450789469": 1}},
				{"inventory", s.stock, map[string]int{"808950810@655441491": 2}},
				{"customers", s.profiles, map[string]int{"207119551": 2}},
			} {
				if !maps.Equal(c.got, c.want) {
					t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
				}
			}
		})
	}
}
