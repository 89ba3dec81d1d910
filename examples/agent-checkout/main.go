// Command agent-checkout runs agents that check carts out for other agents over A2A, and a
// storm around them: every message comes several times, answers are lost, and agents are
// killed. Then it counts charges, orders and webhooks. Its README says more.
//
//	createdb shop
//	go run ./examples/agent-checkout -database postgres:///shop
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/stage"
	"github.com/semelhq/semel/protocol/commerce"
	"github.com/semelhq/semel/protocol/webhook"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/pgstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok := true
	isAgent, err := stage.Child(ctx, agent)
	if !isAgent {
		ok, err = run(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent-checkout:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// storm is what happens around the agents.
type storm struct {
	checkouts, copies, kills int
	agents                   []*stage.Node
	client                   *http.Client
	name                     string // of all carts, unlike those of earlier runs

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

// run is the whole run. It reports whether everything happened once.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	s := &storm{client: &http.Client{}, name: fmt.Sprintf("cart-%x", time.Now().UnixNano()), charged: map[string]string{}}
	flags := flag.NewFlagSet("agent-checkout", flag.ContinueOnError)
	database := flags.String("database", "", "`URL` of the database")
	careless := flags.Bool("unguarded", false, "do the same without Semel")
	flags.IntVar(&s.checkouts, "checkouts", 500, "how many carts are checked out")
	flags.IntVar(&s.copies, "copies", 4, "how often each is sent, at least")
	flags.IntVar(&s.kills, "kills", 10, "how often an agent is killed")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if *database == "" || s.checkouts < 1 || s.copies < 2 || s.kills < 0 {
		return false, errors.New("-database is required, and the numbers are above zero")
	}
	conn, err := pgx.Connect(ctx, *database)
	if err != nil {
		return false, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, table); err != nil {
		return false, err
	}
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.charge(ctx, w, r) }))
	defer gateway.Close()
	for range 3 {
		a, err := stage.StartSelf(ctx, *database, gateway.URL, fmt.Sprint(*careless))
		if err != nil {
			return false, err
		}
		defer a.Kill()
		s.agents = append(s.agents, a)
	}
	if err := s.load().Run(ctx); err != nil {
		return false, err
	}
	s.hooks.Wait()
	for _, a := range s.agents {
		if err := a.Stop(); err != nil {
			return false, err
		}
	}
	store, err := pgstore.Open(ctx, *database, nil)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	engine, err := semel.New(store, nil)
	if err != nil {
		return false, err
	}
	return s.report(ctx, engine, conn, out)
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
			return s.agents[rand.IntN(len(s.agents))].Crash(ctx)
		},
	}
	for n := range s.checkouts {
		for range s.copies - 1 {
			load.Calls = append(load.Calls, 2*n)
		}
		load.Calls = append(load.Calls, 2*n+1)
	}
	return load
}

func (s *storm) anyAgent() string { return s.agents[rand.IntN(len(s.agents))].URL() }

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

// report prints the counts, and says whether they are what they must be.
func (s *storm) report(ctx context.Context, engine *semel.Engine, conn *pgx.Conn, out io.Writer) (ok bool, err error) {
	var orders, handled, found int
	err = conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM orders WHERE transaction LIKE $1),
		(SELECT count(*) FROM semel.idempotency_log WHERE idempotency_key LIKE $2 AND status = 'completed')`,
		"tx-"+s.name+"-%", "webhook:shopify:event-tx-"+s.name+"-%").Scan(&orders, &handled)
	if err != nil {
		return false, err
	}
	for _, transaction := range s.charged {
		page, err := engine.Search(ctx, store.Query{Operation: commerce.PaymentOperation, State: semel.Completed, Attributes: store.Attributes{store.AttributeTransactionID: transaction}})
		if err != nil {
			return false, err
		}
		found += len(page.Records)
	}
	open, err := engine.Search(ctx, store.Query{State: semel.Processing})
	if err != nil {
		return false, err
	}
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
		{len(open.Records), "calls left open"},
	} {
		fmt.Fprintf(out, "%5d %s\n", line.count, line.what)
	}
	once := true
	for _, count := range []int{s.answers.Len(), len(s.charged), orders, handled, found} {
		once = once && count == s.checkouts
	}
	return once && len(s.answers.Differing()) == 0 && len(open.Records) == 0, nil
}
