package upgrade

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// byDoors are the calls of all other doors. The upstream does their work, and counts it.
func (w *world) byDoors() []call {
	calls := []call{}
	add := func(c call, q request) {
		if c.ask == nil {
			c.ask = func(n *node) answer { return n.send(q) }
		}
		if c.make == nil {
			c.make = func(t *testing.T, n *node) { c.ask(n) }
		}
		calls = append(calls, c)
	}
	for _, c := range []call{{name: "ok"}, {name: "rejected"}, {name: "failed"}, {name: "aborted", runs: true}, {name: "broken", held: true}} {
		q := request{path: "/plain/" + c.name, body: `{"amount":1}`, header: map[string]string{"Idempotency-Key": "route-" + c.name}}
		c.path, c.operation, c.key = q.path, "plain", "route-"+c.name
		c.name = "route, " + c.name
		add(c, q)
	}
	for _, c := range []call{{name: "ok"}, {name: "broken", held: true}} {
		q := request{path: "/forrst", body: fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r1","call":{"function":"pay","version":"1.0.0","arguments":{"what":%q}},`+
			`"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"forrst-%s"}}]}`, c.name, c.name)}
		c.path, c.operation, c.key = "/forrst", "functions", "forrst-"+c.name
		c.name = "Forrst, " + c.name
		add(c, q)
	}
	for _, c := range []call{{name: "pay", path: "/command/ok"}, {name: "lose", path: "/command/broken", held: true}, {name: "retry", path: "/retried/broken", held: true}} {
		if !w.evidence() {
			break
		}
		q := request{path: "/v1/commands", body: fmt.Sprintf(`{"tenant_id":"acme","actor_id":"alice","intent":{"entity":"order","action":%q,"target":"t1"}}`, c.name)}
		c.name = "command, " + c.name
		add(c, q)
	}
	if w.evidence() {
		add(w.confirmed(), request{})
	}
	for _, c := range w.webhooks() {
		add(c.call, c.request)
	}
	add(call{name: "ActivityPub", path: "/inbox/ok"}, request{
		path:   "/actors/alice/inbox",
		body:   `{"@context":"https://www.w3.org/ns/activitystreams","id":"https://there.example/a/1","type":"Like","actor":"https://there.example/users/bob","object":"https://social.example/o/1"}`,
		header: map[string]string{"Content-Type": "application/activity+json"},
	})
	if w.numbers() {
		add(call{name: "A2A", path: "/agent"}, request{path: "/agent", body: `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`,
			header: map[string]string{"A2A-Version": "1.0"}})
	}
	// This one is being worked at when the earlier program ends.
	hangs := request{path: "/plain/hangs", body: `{"amount":1}`, header: map[string]string{"Idempotency-Key": "route-hangs"}}
	add(call{name: "route, at work", path: hangs.path, operation: "plain", key: "route-hangs", last: true, cutOff: true, make: func(t *testing.T, n *node) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		t.Cleanup(cancel)
		go func() { _, _ = n.try(ctx, hangs) }() // nobody answers
		until(t, func() string {
			if w.up.asked()[hangs.path] == 0 {
				return "the upstream isn't asked"
			}
			return ""
		})
	}}, hangs)
	return calls
}

// confirmed is a command that was confirmed by the token in the answer to it.
func (w *world) confirmed() call {
	const envelope = `{"tenant_id":"acme","actor_id":"alice","intent":{"entity":"order","action":"confirm","target":"t1"}%s}`
	ask := func(n *node) answer { return n.send(request{path: "/v1/commands", body: fmt.Sprintf(envelope, "")}) }
	return call{name: "command, confirmed", path: "/confirmed/ok", ask: ask, make: func(t *testing.T, n *node) {
		a := ask(n)
		var got struct {
			CommandID    string `json:"command_id"`
			Confirmation struct{ Token string }
		}
		if err := json.Unmarshal(a.raw, &got); err != nil || got.Confirmation.Token == "" {
			t.Fatalf("no token: %d %s", a.Status, a.raw)
		}
		more := fmt.Sprintf(`,"command_id":%q,"confirmation_token":%q`, got.CommandID, got.Confirmation.Token)
		if a := n.send(request{path: "/v1/commands", body: fmt.Sprintf(envelope, more)}); a.Status != 200 {
			t.Fatalf("not confirmed: %d %s", a.Status, a.raw)
		}
	}}
}

func mac(text string) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(text))
	return h.Sum(nil)
}

type delivery struct {
	call    call
	request request
}

// webhooks are deliveries of senders that Semel knows, signed as they sign.
func (w *world) webhooks() []delivery {
	const (
		push  = `{"zen":"x"}`
		order = `{"id":820982911946154508,"email":"a@b.example"}`
		event = `{"id":"evt_1","type":"charge.succeeded","data":{"object":{"id":"ch_1"}}}`
	)
	github := map[string]string{"X-GitHub-Delivery": "d1", "X-GitHub-Event": "push", "X-Hub-Signature-256": fmt.Sprintf("sha256=%x", mac(push))}
	at := time.Now().Unix()
	return []delivery{
		{call{name: "webhook of GitHub, sync", path: "/gs/ok"}, request{path: "/gs", body: push, header: github}},
		{call{name: "webhook of GitHub", path: "/ga/ok"}, request{path: "/ga", body: push, header: github}},
		{call{name: "webhook of Shopify", path: "/sh/ok"}, request{path: "/sh", body: order, header: map[string]string{
			"X-Shopify-Hmac-Sha256": base64.StdEncoding.EncodeToString(mac(order)), "X-Shopify-Topic": "orders/create",
			"X-Shopify-Shop-Domain": "a.myshopify.com", "X-Shopify-Event-Id": "e1", "X-Shopify-Webhook-Id": "w1",
		}}},
		{call{name: "webhook of Stripe", path: "/st/ok"}, request{path: "/st", body: event, header: map[string]string{
			"Stripe-Signature": fmt.Sprintf("t=%d,v1=%x", at, mac(fmt.Sprintf("%d.%s", at, event))),
		}}},
	}
}
