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
)

// demo is the shop with a payment service and a phone of its own, and prints requests to send.
func demo(ctx context.Context, l net.Listener, dir string, out io.Writer) error {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	toys := &toys{out: out, shop: "http://" + l.Addr().String(), secret: "the demo's secret", order: fmt.Sprintf("R-%d", time.Now().Unix()), paid: map[string]payment{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /refunds/{order}", toys.pay)
	mux.HandleFunc("POST /phone", toys.show)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(at) }() // which ends because it is closed
	fmt.Fprintln(out, "A payment service and a phone of its own answer. Ask for a refund, deliver the same message again, and ask in another message:")
	text := func(amount string) map[string]any {
		return map[string]any{"type": "text", "text": map[string]string{"body": "refund " + toys.order + " " + amount}}
	}
	for _, m := range []struct{ id, amount string }{{"1", "12.50"}, {"1", "12.50"}, {"2", "12.5"}} {
		toys.request(m.id, text(m.amount))
	}
	fmt.Fprintln(out)
	there := "http://" + at.Addr().String()
	s := &shop{secret: toys.secret, provider: there, phone: there + "/phone"}
	return errors.Join(s.serve(ctx, l, dir), server.Close())
}

// toys are the payment service and the customer's phone. They tell what they did.
type toys struct {
	out                 io.Writer
	shop, secret, order string

	mu   sync.Mutex
	paid map[string]payment // by key
}

// request prints the request in which WhatsApp delivers a message.
func (t *toys) request(id string, m map[string]any) {
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
	fmt.Fprintf(t.out, "\n  curl -sS -w '%%{http_code}\\n' %s -H '%s: %s' -d '%s'\n", t.shop, whatsapp.SignatureHeader, whatsapp.Sign(t.secret, body), body)
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
		fmt.Fprint(t.out, "Press the button, as often as you like:\n")
		t.request("press."+m.Button, map[string]any{"type": "interactive", "interactive": map[string]any{
			"type": "button_reply", "button_reply": map[string]string{"id": m.Button, "title": "Yes, refund " + t.order + " 12.50"},
		}})
	}
}
