package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel/door/ids/whatsapp"
	"github.com/semelhq/semel/internal/rig/stage"
)

// demo is the shop with a payment service and a phone of its own, and prints requests to send.
func demo(ctx context.Context, l net.Listener, dir string, out io.Writer) error {
	toys := &toys{out: out, shop: "http://" + l.Addr().String(), secret: "the demo's secret", order: fmt.Sprintf("R-%d", time.Now().Unix()), paid: map[string]payment{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /refunds/{order}", toys.pay)
	mux.HandleFunc("POST /phone", toys.show)
	there, stop, err := stage.Toy(mux)
	if err != nil {
		return err
	}
	text := func(id, amount string) stage.Request {
		return toys.request(id, map[string]any{"type": "text", "text": map[string]string{"body": "refund " + toys.order + " " + amount}})
	}
	stage.Show(out, "A payment service and a phone of its own answer. Ask for a refund, deliver the same message again, and ask in another message:",
		text("1", "12.50"), text("1", "12.50"), text("2", "12.5"))
	s := &shop{secret: toys.secret, provider: there, phone: there + "/phone"}
	return errors.Join(s.serve(ctx, l, dir), stop())
}

// toys are the payment service and the customer's phone. They print everything they do.
type toys struct {
	out                 io.Writer
	shop, secret, order string

	mu   sync.Mutex
	paid map[string]payment // by key
}

// request is the request in which WhatsApp delivers a message.
func (t *toys) request(id string, m map[string]any) stage.Request {
	m["from"], m["id"], m["timestamp"] = "351900000001", "wamid."+t.order+"."+id, fmt.Sprint(time.Now().Unix())
	type object map[string]any
	body, err := json.Marshal(object{"object": "whatsapp_business_account", "entry": []object{{"id": "880000000000001", "changes": []object{{
		"field": "messages", "value": object{
			"messaging_product": "whatsapp", "metadata": object{"phone_number_id": phoneNumber}, "messages": []object{m},
		},
	}}}}})
	if err != nil {
		panic(err) // it has strings only
	}
	return stage.Request{URL: t.shop, Header: http.Header{whatsapp.SignatureHeader: {whatsapp.Sign(t.secret, body)}}, Body: string(body)}
}

// pay is the payment service. It pays once for each key.
func (t *toys) pay(w http.ResponseWriter, r *http.Request) {
	var in struct{ Amount string }
	key := r.Header.Get("Idempotency-Key")
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || key == "" {
		http.Error(w, "an amount and a key, please", http.StatusBadRequest)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	made, known := t.paid[key]
	if !known {
		made = payment{ID: fmt.Sprintf("re_%d", len(t.paid)+1), Amount: in.Amount}
		t.paid[key] = made
		fmt.Fprintf(t.out, "payment service: refunded %s of order %s as %s\n", made.Amount, r.PathValue("order"), made.ID)
	}
	_ = json.NewEncoder(w).Encode(made) // a client that is gone asks again
}

// show is the phone. It prints what the customer reads, and the request that a press of the button
// makes.
func (t *toys) show(w http.ResponseWriter, r *http.Request) {
	var m message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, "no message", http.StatusBadRequest)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "phone: %s\n", m.Text)
	if m.Button != "" {
		stage.Show(t.out, "Press the button, as often as you like:", t.request("press."+m.Button, map[string]any{"type": "interactive", "interactive": map[string]any{
			"type": "button_reply", "button_reply": map[string]string{"id": m.Button, "title": "Yes, refund " + t.order + " 12.50"},
		}}))
	}
}
