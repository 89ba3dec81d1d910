package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	random "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/shield"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/pgstore"
)

// TestMain lets this test binary be an agent, as the program is, or a careless one.
func TestMain(m *testing.M) {
	isAgent, err := stage.Child(context.Background(), func(ctx context.Context, l net.Listener, args []string) error {
		if args[2] == "true" {
			return serveCareless(ctx, l, args[0], args[1])
		}
		return serve(ctx, l, args[0], args[1])
	})
	if !isAgent {
		os.Exit(pgtest.Main(m))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestCheckouts(t *testing.T) {
	if testing.Short() {
		t.Skip("agents are not started with -short")
	}
	t.Run("each cart is paid and ordered once", func(t *testing.T) {
		clause.Proves(t, "MAP-PAY.2", "MAP-ORD.1")
		carts := thorough.Scaled(500)
		got := play(t, carts, 10, false)
		want := map[string]int{
			"carts": carts, "carts with an answer": carts, "charges": carts, "orders": carts, "webhooks handled": carts,
			"payments found by their transaction": carts, "carts with two answers": 0, "calls left open": 0, "kills of agents": 10,
		}
		for what, n := range want {
			if got[what] != n {
				t.Errorf("%d %s, want %d", got[what], what, n)
			}
		}
		if got["deliveries of messages"] <= copies*carts || got["deliveries of webhooks"] < 2*carts || got["answers of the gateway lost"] == 0 {
			t.Error("the run was no test: nothing had to be sent again")
		}
	})
	t.Run("without Semel they are paid several times", func(t *testing.T) {
		got := play(t, 40, 2, true)
		if got["charges"] <= 40 || got["orders"] <= 40 || got["carts with two answers"] == 0 {
			t.Error("the storm doesn't show that anything is needed")
		}
	})
}

// careless is the same agent without Semel.
type careless struct{ *shop }

// Execute implements [a2asrv.AgentExecutor].
func (s careless) Execute(ctx context.Context, x *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return answer(ctx, x, s.checkOut)
}

func (s careless) checkOut(ctx context.Context, c checkout) (r receipt, err error) {
	paid, err := s.charge(shield.WithOwnKey(ctx, rand.Text()), commerce.Charge{Reference: c.ID})
	if err != nil {
		return r, err
	}
	r.Transaction = paid.TransactionID
	return r, s.pool.QueryRow(ctx, insert, rand.Text(), r.Transaction, 1250*c.Mugs).Scan(&r.Order)
}

// serveCareless serves until ctx is done. It takes each webhook, and does nothing.
func serveCareless(ctx context.Context, l net.Listener, database, gateway string) error {
	slog.SetLogLoggerLevel(slog.LevelError)
	pool, err := connect(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	s := careless{&shop{pool: pool, gateway: gateway, client: &http.Client{Transport: shield.ProviderKey(shield.Stripe(), nil)}}}
	mux := http.NewServeMux()
	mux.Handle("/a2a", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(s)))
	mux.HandleFunc("/webhooks", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Handler: mux}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// storm is what happens around the agents: every message comes several times, answers are
// lost, and agents are killed.
type storm struct {
	checkouts, kills int
	agents           []*stage.Node
	client           *http.Client
	name             string // of all carts, unlike those of earlier runs

	answers    stage.Counts // by cart
	deliveries atomic.Int64 // of messages
	killed     int          // agents

	mu       sync.Mutex
	charged  map[string]string // transactions, by the key of the gateway
	lost     int               // answers of the gateway
	asked    int               // questions about charges
	hooks    sync.WaitGroup
	notified atomic.Int64 // deliveries of webhooks
}

// copies is how often each cart is sent, at least.
const copies = 4

// play is the whole storm. It returns the counts at its end.
func play(t *testing.T, checkouts, kills int, careless bool) map[string]int {
	t.Helper()
	s := &storm{checkouts: checkouts, kills: kills, client: &http.Client{}, name: fmt.Sprintf("cart-%x", time.Now().UnixNano()), charged: map[string]string{}}
	server := pgtest.Shared(t)
	name := server.Database(t)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.charge(t.Context(), w, r) }))
	defer gateway.Close()
	for range 3 {
		a, err := stage.StartSelf(t.Context(), server.URL(name), gateway.URL, fmt.Sprint(careless))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Kill()
		s.agents = append(s.agents, a)
	}
	if err := s.load().Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.hooks.Wait()
	for _, a := range s.agents {
		if err := a.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	store, err := pgstore.Open(t.Context(), server.URL(name), &pgstore.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	engine, err := semel.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s.counts(t, engine, server.Conn(t, name))
}

// load are the messages about all carts. The copies for one cart are one behind the other, so
// that they run at once, and the last has another id: the sender has forgotten the first.
func (s *storm) load() *stage.Load {
	decided := time.Now()
	load := &stage.Load{
		Senders: 40, Pause: 40 * time.Millisecond, HangUp: 50 * time.Millisecond, Times: s.kills,
		Try: func(ctx context.Context, n int) (bool, error) {
			return s.send(ctx, n, checkout{ID: fmt.Sprintf("%s-%d", s.name, n/2), User: fmt.Sprintf("user-%d", n/2), Mugs: int64(n/2%3 + 1), DecidedAt: decided})
		},
		Disturb: func(ctx context.Context) error {
			s.killed++
			return s.agents[random.IntN(len(s.agents))].Crash(ctx)
		},
	}
	for n := range s.checkouts {
		for range copies - 1 {
			load.Calls = append(load.Calls, 2*n)
		}
		load.Calls = append(load.Calls, 2*n+1)
	}
	return load
}

func (s *storm) anyAgent() string { return s.agents[random.IntN(len(s.agents))].URL() }

// send sends a message once, as a client of A2A does.
func (s *storm) send(ctx context.Context, n int, c checkout) (answered bool, err error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": map[string]any{"message": map[string]any{
		"messageId": fmt.Sprintf("%s-message-%d", s.name, n), "role": "ROLE_USER", "parts": []any{map[string]any{"data": c}},
	}}})
	if err != nil {
		return false, err
	}
	s.deliveries.Add(1)
	_, answer := s.post(ctx, "/a2a", http.Header{"Content-Type": {"application/json"}, "A2a-Version": {"1.0"}}, body)
	var got struct {
		Result struct {
			Message struct{ Parts []struct{ Data receipt } }
		}
	}
	if json.Unmarshal(answer, &got) != nil || len(got.Result.Message.Parts) != 1 {
		return false, nil // no answer, or an error: send it again
	}
	s.answers.Add(c.ID, fmt.Sprint(got.Result.Message.Parts[0].Data))
	return true, nil
}

// post posts to any agent. Without an answer the status is 0.
func (s *storm) post(ctx context.Context, path string, header http.Header, body []byte) (status int, answer []byte) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.anyAgent()+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil
	}
	r.Header = header
	resp, err := s.client.Do(r)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil
	}
	return resp.StatusCode, answer
}

// charge is the gateway. It charges once for each key, and breaks off one answer in twenty.
func (s *storm) charge(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		key = r.FormValue("key")
		s.asked++
	}
	transaction, known := s.charged[key]
	breakOff := false
	if r.Method == http.MethodPost && !known {
		transaction = fmt.Sprintf("tx-%s-%d", s.name, len(s.charged)+1)
		s.charged[key] = transaction
		event, ref := transaction, r.FormValue("reference")
		s.hooks.Go(func() { s.notify(ctx, event, ref) })
		if breakOff = len(s.charged)%20 == 0; breakOff {
			s.lost++
		}
	}
	answer, _ := json.Marshal(commerce.Charged{TransactionID: transaction}) // of strings
	if breakOff {
		w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
		answer = answer[:len(answer)/2]
	}
	_, _ = w.Write(answer)
}

// notify delivers the webhook of a payment in the way of Shopify: twice, each until an agent
// has taken it.
func (s *storm) notify(ctx context.Context, transaction, reference string) {
	source, err := webhook.Builtin("shopify")
	if err != nil {
		panic(err) // it is built in
	}
	body, _ := json.Marshal(map[string]string{"id": transaction, "reference": reference, "kind": "sale", "status": "success"}) // strings
	d := &webhook.Delivery{Body: body, Header: http.Header{
		"Content-Type": {"application/json"}, "X-Shopify-Topic": {"order_transactions/create"},
		"X-Shopify-Shop-Domain": {"acme.myshopify.com"}, "X-Shopify-Event-Id": {"event-" + transaction},
	}}
	if err := source.Sign(d, secret, "", time.Now()); err != nil {
		panic(err) // it has a secret
	}
	for range 2 {
		for status := 0; status != http.StatusOK && ctx.Err() == nil; stage.Pause(ctx, 40*time.Millisecond) {
			s.notified.Add(1)
			status, _ = s.post(ctx, "/webhooks", d.Header, body)
		}
	}
}

// counts are what is there in the end, which it logs.
func (s *storm) counts(t *testing.T, engine *semel.Engine, conn *pgx.Conn) map[string]int {
	t.Helper()
	var orders, handled, found int
	err := conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM orders WHERE transaction LIKE $1),
		(SELECT count(*) FROM semel.idempotency_log WHERE idempotency_key LIKE $2 AND status = 'completed')`,
		"tx-"+s.name+"-%", "webhook:shopify:event-tx-"+s.name+"-%").Scan(&orders, &handled)
	if err != nil {
		t.Fatal(err)
	}
	search := func(q store.Query) int {
		page, err := engine.Search(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Records)
	}
	for _, transaction := range s.charged {
		found += search(store.Query{Operation: commerce.PaymentOperation, State: semel.Completed, Attributes: store.Attributes{store.AttributeTransactionID: transaction}})
	}
	all := map[string]int{}
	var text strings.Builder
	for _, line := range []struct {
		count int
		what  string
	}{
		{s.checkouts, "carts"},
		{int(s.deliveries.Load()), "deliveries of messages"},
		{s.killed, "kills of agents"},
		{s.answers.Len(), "carts with an answer"},
		{len(s.answers.Differing()), "carts with two answers"},
		{len(s.charged), "charges"},
		{s.lost, "answers of the gateway lost"},
		{s.asked, "questions about charges"},
		{orders, "orders"},
		{int(s.notified.Load()), "deliveries of webhooks"},
		{handled, "webhooks handled"},
		{found, "payments found by their transaction"},
		{search(store.Query{State: semel.Processing}), "calls left open"},
	} {
		all[line.what] = line.count
		fmt.Fprintf(&text, "\n%5d %s", line.count, line.what)
	}
	t.Log(text.String())
	return all
}
