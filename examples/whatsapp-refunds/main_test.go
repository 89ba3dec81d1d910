package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/door/ids/whatsapp"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/store/pebblestore"
)

const secret = "the secret of the app"

// TestMain lets this test binary be the example, too.
func TestMain(m *testing.M) {
	isNode, err := stage.Child(context.Background(), func(ctx context.Context, l net.Listener, args []string) error {
		return (&shop{secret: secret, provider: args[1], phone: args[2]}).serve(ctx, l, args[0])
	})
	if !isNode {
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// world is everything around the shop: its customers, WhatsApp, and the payment service.
type world struct {
	t    *testing.T
	ctx  context.Context
	node *stage.Node

	paid     stage.Counts // amounts by order, by the payment service's own count
	outcomes stage.Counts // what buyers were told, by order
	presses  sync.WaitGroup
	messages atomic.Int64
	forged   atomic.Int64

	mu      sync.Mutex
	byKey   map[string]payment
	known   int // requests that the payment service knew by their key
	resends int // deliveries that were not answered with 200
}

func orderName(i int) string { return fmt.Sprintf("R-%04d", i) }
func amount(i int) string    { return fmt.Sprintf("%d.%d0", 1+i, i%10) }

// pay is the payment service. It pays once for each key.
func (c *world) pay(w http.ResponseWriter, r *http.Request) {
	var in struct{ Amount string }
	key := r.Header.Get("Idempotency-Key")
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || key == "" {
		http.Error(w, "an amount and a key, please", http.StatusBadRequest)
		return
	}
	stage.Pause(r.Context(), rand.N(20*time.Millisecond)) // so that kills meet requests on their way
	c.mu.Lock()
	made, known := c.byKey[key]
	if known {
		c.known++
	} else {
		made = payment{ID: fmt.Sprintf("re_%d", len(c.byKey)+1), Amount: in.Amount}
		c.byKey[key] = made
		c.paid.Add(path.Base(r.URL.Path), in.Amount)
	}
	c.mu.Unlock()
	_ = json.NewEncoder(w).Encode(made) // a client that is gone asks again
}

// phone receives the shop's messages. Customers press every button that they see.
func (c *world) phone(w http.ResponseWriter, r *http.Request) {
	var m message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, "no message", http.StatusBadRequest)
		return
	}
	order := strings.Split(m.InReplyTo, ".")[1]
	switch {
	case m.Button != "":
		var i int
		_, _ = fmt.Sscanf(order, "R-%d", &i)
		body := c.webhook(order, map[string]any{"type": "interactive", "interactive": map[string]any{
			"type": "button_reply", "button_reply": map[string]string{"id": m.Button, "title": "Yes, refund " + order + " " + amount(i)},
		}})
		c.presses.Go(func() { c.deliver(body) })
	case strings.HasPrefix(m.Text, "Refunded"):
		c.outcomes.Add(order, m.Text)
	}
}

// text is the webhook of a text message.
func (c *world) text(order, text string) []byte {
	return c.webhook(order, map[string]any{"type": "text", "text": map[string]string{"body": text}})
}

// webhook is the body in which WhatsApp delivers a message.
func (c *world) webhook(order string, m map[string]any) []byte {
	m["from"], m["id"], m["timestamp"] = "3519"+order[2:], fmt.Sprintf("wamid.%s.%d", order, c.messages.Add(1)), fmt.Sprint(time.Now().Unix())
	type object map[string]any
	body, err := json.Marshal(object{"object": "whatsapp_business_account", "entry": []object{{"id": "880000000000001", "changes": []object{{
		"field": "messages", "value": object{
			"messaging_product": "whatsapp", "metadata": object{"phone_number_id": phoneNumber}, "messages": []object{m},
		},
	}}}}})
	if err != nil {
		c.t.Error(err)
	}
	return body
}

// deliver delivers a body 3 to 10 times at once, each until it is answered with 200.
func (c *world) deliver(body []byte) {
	load := stage.Load{
		Calls: make([]int, 3+rand.IntN(8)), Senders: 10, Pause: 20 * time.Millisecond,
		Try: func(_ context.Context, _ int) (bool, error) {
			status := c.post(body, whatsapp.Sign(secret, body))
			if status == http.StatusOK {
				return true, nil
			}
			c.mu.Lock()
			c.resends++
			c.mu.Unlock()
			if status != 0 && status != http.StatusServiceUnavailable {
				return false, fmt.Errorf("a delivery was answered with %d", status)
			}
			return false, nil
		},
	}
	if err := load.Run(c.ctx); err != nil && c.ctx.Err() == nil {
		c.t.Error(err)
	}
}

// post makes one delivery, and returns the status of the answer, if there is one.
func (c *world) post(body []byte, signature string) (status int) {
	req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, c.node.URL(), bytes.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header.Set(whatsapp.SignatureHeader, signature)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// ask is a customer who asks for a refund. Some write twice, and not quite the same. Some
// messages come again with another content, and some are forged.
func (c *world) ask(i int) {
	order, text := orderName(i), fmt.Sprintf("refund %s %s", orderName(i), amount(i))
	first := c.text(order, text)
	c.deliver(first)
	if i%4 == 0 {
		c.deliver(c.text(order, "  "+strings.TrimSuffix(text, "0")))
	}
	if i%20 == 7 {
		c.deliver(bytes.Replace(first, []byte(amount(i)), []byte("9999.99"), 1))
	}
	if i%20 == 13 {
		changed := bytes.Replace(first, []byte("refund"), []byte("REFUND"), 1)
		for _, signature := range []string{"", whatsapp.Sign("another secret", changed), whatsapp.Sign(secret, first)} {
			status := c.post(changed, signature)
			for status == 0 && c.ctx.Err() == nil { // its node was killed
				status = c.post(changed, signature)
			}
			if c.forged.Add(1); status != http.StatusUnauthorized && status != http.StatusForbidden && c.ctx.Err() == nil {
				c.t.Errorf("a forged delivery got %d", status)
			}
		}
	}
}

// TestRefunds has customers ask for refunds and confirm them, and WhatsApp deliver each
// message several times at once, while the shop is killed and started again. Then it counts
// the payments and what buyers were told, and audits the evidence.
func TestRefunds(t *testing.T) {
	clause.Proves(t, "IDS-V.1", "IDS-VII.4", "IDS-IX.1", "IDS-IX.3", "IDS-IX.4", "IDS-X.3", "IDS-XI.S1",
		"IDS-XII.1", "IDS-XII.2", "IDS-XII.3", "IDS-XIII.1", "IDS-XIII.2", "IDS-XIII.3")
	if testing.Short() {
		t.Skip("nodes are not started with -short")
	}
	const refunds, kills = 60, 6
	ctx, over := context.WithCancel(t.Context())
	defer over()
	c := &world{t: t, ctx: ctx, byKey: map[string]payment{}}
	provider, phone := httptest.NewServer(http.HandlerFunc(c.pay)), httptest.NewServer(http.HandlerFunc(c.phone))
	defer provider.Close()
	defer phone.Close()
	dir := t.TempDir()
	var err error
	if c.node, err = stage.StartSelf(ctx, dir, provider.URL, phone.URL); err != nil {
		t.Fatal(err)
	}
	defer func() { c.node.Kill() }()
	load := stage.Load{
		Calls: stage.Shuffled(refunds, 1), Senders: 16,
		Try: func(_ context.Context, i int) (bool, error) {
			c.ask(i)
			return true, nil
		},
		Disturb: func(ctx context.Context) error {
			stage.Pause(ctx, rand.N(200*time.Millisecond))
			return c.node.Crash(ctx)
		},
		Times: kills,
	}
	if err := load.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if err := stage.Until(ctx, func() bool { return c.outcomes.Len() == refunds }); err != nil {
		t.Fatal(err)
	}
	over() // buttons whose presses aren't delivered yet are for refunds that were paid
	if err := c.node.Stop(); err != nil {
		t.Errorf("the node did not stop in order: %v", err)
	}
	c.presses.Wait()

	for i := range refunds {
		// Amounts are normalised: 12.50 is paid as 12.5.
		want := strings.TrimSuffix(strings.TrimRight(amount(i), "0"), ".")
		if paid := c.paid.Of(orderName(i)); len(paid) != 1 || paid[0] != want {
			t.Errorf("the refund of %s, by %s, was paid by %q", orderName(i), want, paid)
		}
	}
	if differing := c.outcomes.Differing(); len(differing) > 0 || c.paid.Len() != refunds {
		t.Errorf("%d orders were paid; buyers were told different things about %q", c.paid.Len(), differing)
	}
	audited := audit(t, dir, refunds)
	if c.resends == 0 || c.forged.Load() == 0 {
		t.Error("the run was no test: nothing was repeated, or forged")
	}
	t.Logf("%d refunds asked for in %d messages; %d deliveries not answered with 200, %d forged, %d kills", refunds, c.messages.Load(), c.resends, c.forged.Load(), kills)
	t.Logf("%d refunds paid, each once, in %d requests; %s", c.paid.Len(), len(c.byKey)+c.known, audited)
}

// audit exports the evidence, verifies it with only the public key and the checkpoint that
// was kept beside the store, and counts what happened by it.
func audit(t *testing.T, dir string, refunds int) (text string) {
	t.Helper()
	store, err := pebblestore.Open(filepath.Join(dir, "store"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log, err := openLog(store, dir)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := log.Reader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var export bytes.Buffer
	if err := reader.Export(t.Context(), &export, nil); err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	trust, err := evidence.ParseTrust(read("evidence.pub"))
	if err != nil {
		t.Fatal(err)
	}
	kept := evidence.SplitCheckpoints(read("checkpoints/latest"))
	report, err := evidence.Verify(bytes.NewReader(export.Bytes()), trust, &evidence.VerifyOptions{Kept: kept})
	if err != nil || report.Finding != nil || report.Kept == 0 {
		t.Fatalf("the evidence does not verify: %+v, %v", report, err)
	}
	events := map[string]map[string]int{} // by what happened, and to which key
	for line := range bytes.Lines(export.Bytes()) {
		var e struct {
			N       *uint64
			Leaf    json.RawMessage
			Opening *evidence.Opening
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.N == nil {
			continue // the head, a checkpoint or the end
		}
		leaf, err := evidence.ParseArtifact(e.Leaf)
		if err != nil || e.Opening == nil {
			t.Fatalf("entry %d has no opening, %v", *e.N, err)
		}
		event := cmp.Or(leaf.Payload.Decision, string(leaf.Type))
		if e.Opening.Operation == "order.refund" {
			event = "refund " + event
		}
		if events[event] == nil {
			events[event] = map[string]int{}
		}
		events[event][e.Opening.IdempotencyKey]++
	}
	for _, event := range []string{evidence.DecisionFirstSeen, string(evidence.TypeConfirmationConsumed), string(evidence.TypeExecuted)} {
		for key, n := range events["refund "+event] {
			if n != 1 {
				t.Errorf("the evidence has %s of %s %d times", event, key, n)
			}
		}
		if n := len(events["refund "+event]); n != refunds {
			t.Errorf("the evidence has %s of %d refunds of %d", event, n, refunds)
		}
	}
	duplicates, conflicts := len(events[evidence.DecisionReplayed]), len(events[evidence.DecisionConflict])
	if duplicates == 0 || conflicts < refunds/20 {
		t.Errorf("the evidence has duplicates of %d messages, and %d conflicts", duplicates, conflicts)
	}
	return fmt.Sprintf("%d entries of evidence verified, with duplicates of %d messages and %d conflicts", report.Entries, duplicates, conflicts)
}
