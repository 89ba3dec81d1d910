package forrst_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/storm"
	"github.com/semelhq/semel/store"
)

// The functions of the storm.
const (
	// Its one effect is in the ledger. A call that was cut off in it is held.
	chargeOnce = "storm.charge"
	// Its upstream deduplicates, so a call that was cut off runs again.
	orderAgain = "storm.order"
)

// stormBank is the name of the effect of chargeOnce.
const stormBank = "bank"

func TestMain(m *testing.M) { os.Exit(storm.Main(m, stormNode)) }

func stormNode(_ context.Context, engine *semel.Engine, sink string) (http.Handler, error) {
	upstream, err := forrst.NewUpstream(forrst.UpstreamOptions{URL: sink + "/order"})
	if err != nil {
		return nil, err
	}
	function := func(op semel.Operation, run forrst.Handler) forrst.Function {
		op.Lease = 2 * time.Second
		return forrst.Function{Name: op.Name, Operation: op, Versions: []forrst.Version{{Version: "1.0.0", Run: run}}}
	}
	return forrst.New(engine, forrst.Options{Identify: identify, Functions: []forrst.Function{
		function(semel.Operation{Name: chargeOnce, Effects: []string{stormBank}}, func(ctx context.Context, x semel.Execution, r *forrst.Request) (any, error) {
			return semel.Effect(ctx, x, stormBank, func(ctx context.Context, _ string) (json.RawMessage, error) {
				return postTo(ctx, sink+"/charge", r.Arguments)
			})
		}),
		function(semel.Operation{Name: orderAgain, OnAbandoned: semel.RetryAbandoned}, upstream.Run),
	}})
}

// postTo sends JSON, once, and returns what was answered.
func postTo(ctx context.Context, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// stormSink has the effects of the functions, outside of the nodes.
type stormSink struct {
	*httptest.Server
	mu      sync.Mutex
	charges map[int]int    // how often each number was charged
	orders  map[int]string // results by number, which is what it deduplicates by
	again   int            // orders that were asked for again
}

func newStormSink(t *testing.T) *stormSink {
	s := &stormSink{charges: map[int]int{}, orders: map[int]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/charge", func(w http.ResponseWriter, r *http.Request) {
		var args struct{ N int }
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			return // the node was killed before it had sent it
		}
		s.mu.Lock()
		s.charges[args.N]++
		s.mu.Unlock()
		s.dawdle(r)
		fmt.Fprint(w, stormCharge(args.N))
	})
	mux.HandleFunc("/order", func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID   string
			Call struct{ Arguments struct{ N int } }
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			return
		}
		n := req.Call.Arguments.N
		s.mu.Lock()
		if s.orders[n] == "" {
			s.orders[n] = fmt.Sprintf(`{"order":"o-%d-%d"}`, n, rand.Int())
		} else {
			s.again++
		}
		result := s.orders[n]
		s.mu.Unlock()
		s.dawdle(r)
		fmt.Fprintf(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":%q,"result":%s}`, req.ID, result)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(func() { s.Close() })
	return s
}

// drain ends what killed nodes have sent: afterwards nothing that isn't counted happens.
func (s *stormSink) drain() {
	s.Close()
	s.Server = httptest.NewServer(s.Config.Handler)
}

// dawdle lets some calls be under way when a node is killed.
func (s *stormSink) dawdle(r *http.Request) {
	select {
	case <-time.After(rand.N(20 * time.Millisecond)):
	case <-r.Context().Done():
	}
}

// stormCalls is what the senders were told.
type stormCalls struct {
	t        *testing.T
	mu       sync.Mutex
	results  map[int]string // by number
	first    map[int]string // the request whose result it is
	executed map[int]int    // answers with the status processed
	held     map[int]bool   // the outcome is not known
	refused  int            // answers to ask again later
}

// TestStorm has clients make every call several times, in random order, while some hang up
// and nodes are killed. No charge is made twice and no order is lost, and all answers to a
// call have the same result, or say that it is being processed.
func TestStorm(t *testing.T) {
	clause.Proves(t, "FOR-FIRST.1", "FOR-DUP.1", "FOR-PROC.1", "FOR-ID.1")
	events, kills := storm.Size()
	storm.OnEach(t, func(t *testing.T, on storm.Store) {
		sink := newStormSink(t)
		c := &stormCalls{t: t, results: map[int]string{}, first: map[int]string{}, executed: map[int]int{}, held: map[int]bool{}}
		rig := storm.Start(t, on, sink.URL)
		rig.Play(events, kills, c.deliver)
		rig.Stop()
		sink.drain()
		c.settle(on, sink, events)
		t.Logf("%d calls, each made %d times, %d kills: %d held and settled, %d orders asked for again, %d times told to wait",
			events, storm.Copies, kills, len(c.held), sink.again, c.refused)
	})
}

// stormFunction is what the call with a number calls.
func stormFunction(n int) string {
	if n%2 == 0 {
		return chargeOnce
	}
	return orderAgain
}

func stormRequest(n int) (id, body string) {
	id = fmt.Sprintf("req_%d_%d", n, rand.Int())
	body = call(id, fmt.Sprintf(`{"n":%d}`, n), fmt.Sprintf(`{"key":"call-%d"}`, n))
	return id, strings.Replace(body, "payments.charge", stormFunction(n), 1)
}

// deliver makes a call, and reports whether its answer is final.
func (c *stormCalls) deliver(ctx context.Context, url string, n int) bool {
	id, body := stormRequest(n)
	raw, err := postTo(ctx, url, []byte(body))
	if err != nil {
		return false // it hung up, or the node was killed
	}
	s := &said{body: string(raw)}
	if err := json.Unmarshal(raw, s); err != nil || s.ID == nil || *s.ID != id {
		c.t.Errorf("%v: %s", err, raw)
		return true
	}
	return c.note(n, s)
}

// note checks an answer against those that the call has had, and reports whether it is final.
func (c *stormCalls) note(n int, s *said) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if code := s.code(); code != "" {
		if code == forrst.DeadlineExceeded && s.data("idempotency")["status"] == "processing" {
			c.refused++
			return false // the upstream was slower than a busy machine allows; nobody knows yet
		}
		if code != forrst.IdempotencyProcessing && code != forrst.Unavailable || s.data("retry")["allowed"] != true {
			c.t.Errorf("call %d: %s", n, s.body)
			return true
		}
		if s.Errors[0].Details["reason"] == "outcome_unknown" {
			c.held[n] = true
			return true
		}
		c.refused++
		return false
	}
	data := s.data("idempotency")
	original, _ := data["original_request_id"].(string)
	switch data["status"] {
	case "processed":
		if c.executed[n]++; c.executed[n] > 1 {
			c.t.Errorf("call %d was executed %d times: %s", n, c.executed[n], s.body)
		}
	case "cached":
	default:
		c.t.Errorf("call %d: %s", n, s.body)
	}
	if !strings.HasPrefix(original, fmt.Sprintf("req_%d_", n)) { // not its own if another's attempt was cut off
		c.t.Errorf("call %d was first made by %s", n, original)
	}
	if result, known := c.results[n]; known && (result != string(s.Result) || c.first[n] != original) {
		c.t.Errorf("call %d has the results %s of %s and %s of %s", n, result, c.first[n], s.Result, original)
	}
	c.results[n], c.first[n] = string(s.Result), original
	return true
}

// settle says by the sink what became of held calls, makes every call once more, and
// counts.
func (c *stormCalls) settle(on storm.Store, sink *stormSink, events int) {
	t := c.t
	ctx := t.Context()
	st, err := storm.Open(ctx, on.URL)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := semel.New(st, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = engine.Close(ctx) }()
	service, err := stormNode(ctx, engine, sink.URL)
	if err != nil {
		t.Fatal(err)
	}
	for n := range events {
		sink.mu.Lock()
		happened := sink.charges[n] > 0
		sink.mu.Unlock()
		if c.held[n] {
			id := semel.Call{Operation: stormFunction(n), Principal: "tester", Scope: stormFunction(n) + "@1.0.0", Key: fmt.Sprint("call-", n)}
			s := semel.Settlement{Outcome: semel.DispositionAborted}
			if happened {
				s = semel.Settlement{
					Outcome: semel.DispositionCompleted, Result: semel.Result{Data: []byte(stormCharge(n))},
					Effects: []store.EffectFinding{{Name: stormBank, State: store.EffectConfirmed}},
				}
			}
			if _, err := engine.Settle(ctx, id.ID(semel.SharePrincipal), s, "asked the bank"); err != nil {
				t.Errorf("call %d can't be settled: %v", n, err)
			}
		}
		_, body := stormRequest(n)
		w := &world{t: t, service: service.(*forrst.Service)}
		if s := w.post(body); s.status != http.StatusOK || !c.note(n, s) || !c.held[n] && s.data("idempotency")["status"] != "cached" {
			t.Errorf("call %d, held %t, happened %t: %d %s", n, c.held[n], happened, s.status, s.body)
		}
	}
	c.count(sink, events)
}

func (c *stormCalls) count(sink *stormSink, events int) {
	sink.mu.Lock()
	defer sink.mu.Unlock()
	for n := range events {
		switch stormFunction(n) {
		case chargeOnce:
			if sink.charges[n] != 1 || c.results[n] != stormCharge(n) {
				c.t.Errorf("call %d was charged %d times: %s", n, sink.charges[n], c.results[n])
			}
		case orderAgain:
			if sink.orders[n] == "" || c.results[n] != sink.orders[n] || c.held[n] {
				c.t.Errorf("call %d, held %t, ordered %s: %s", n, c.held[n], sink.orders[n], c.results[n])
			}
		}
	}
}

// stormCharge is the result of a charge.
func stormCharge(n int) string { return fmt.Sprintf(`{"charge":"c-%d"}`, n) }
