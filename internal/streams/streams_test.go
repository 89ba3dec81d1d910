package streams_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/engine/segments"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/storm"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// onEach runs a test with a function that opens the store of one more node.
func onEach(t *testing.T, run func(t *testing.T, open func() semel.Store)) {
	shared := func(t *testing.T, st semel.Store, err error) func() semel.Store {
		must(t, err)
		t.Cleanup(func() { _ = st.Close() })
		return func() semel.Store { return st }
	}
	t.Run("in memory", func(t *testing.T) { run(t, shared(t, memstore.New(), nil)) })
	if testing.Short() {
		return
	}
	storm.OnEach(t, func(t *testing.T, s storm.Store) {
		if s.Nodes == 1 {
			st, err := storm.Open(t.Context(), s.URL)
			run(t, shared(t, st, err))
			return
		}
		run(t, func() semel.Store {
			st, err := storm.Open(context.Background(), s.URL)
			return shared(t, st, err)()
		})
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// cut is the store of a node that may lose it.
type cut struct {
	semel.Store
	off atomic.Bool
}

func (c *cut) Apply(ctx context.Context, w store.Write) (*store.Record, bool, error) {
	if c.off.Load() {
		return nil, false, errors.New("cut off")
	}
	return c.Store.Apply(ctx, w)
}

// node is a server that streams the events that it gets from a channel.
type node struct {
	*httptest.Server
	engine *semel.Engine
	store  *cut
	events chan string
	runs   *atomic.Int64
}

func newNode(t *testing.T, st semel.Store, runs *atomic.Int64, lease time.Duration) *node {
	n := &node{store: &cut{Store: st}, events: make(chan string), runs: runs}
	var err error
	n.engine, err = semel.New(n.store, nil)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var swept sync.WaitGroup
	swept.Go(func() { _ = n.engine.Run(ctx, 100*time.Millisecond) })
	t.Cleanup(func() { stop(); swept.Wait() })
	guard, err := semelhttp.New(n.engine, nil)
	must(t, err)
	n.Server = httptest.NewServer(guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op", Lease: lease}, Timeout: time.Hour}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for event := range n.events {
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
		}
	})))
	t.Cleanup(n.Close)
	return n
}

// ask sends the call.
func (n *node) ask(t *testing.T, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", n.URL, strings.NewReader("one"))
	must(t, err)
	r.Header.Set("Idempotency-Key", "k1")
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	resp, err := n.Client().Do(r)
	must(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// join asks until the stream has begun for a duplicate.
func (n *node) join(t *testing.T, header ...string) *http.Response {
	t.Helper()
	for {
		resp := n.ask(t, header...)
		if resp.StatusCode == http.StatusOK {
			return resp
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
}

func event(i int) string { return fmt.Sprintf("id: %d\ndata: event number %d\n\n", i, i) }

// A stream that was cut, and joined on this node and on another, is byte for byte what the
// handler wrote, and the handler ran once.
func TestAStreamIsJoinedAndReplayed(t *testing.T) {
	onEach(t, func(t *testing.T, open func() semel.Store) {
		var runs atomic.Int64
		a, b := newNode(t, open(), &runs, 0), newNode(t, open(), &runs, 0)
		first := a.ask(t)
		var want strings.Builder
		write := func(from, to int) {
			for i := from; i < to; i++ {
				want.WriteString(event(i))
				a.events <- event(i)
			}
		}
		write(1, 3)
		in := bufio.NewReader(first.Body)
		if line, err := in.ReadString('\n'); err != nil || line != "id: 1\n" {
			t.Fatalf("%q, %v", line, err)
		}
		_ = first.Body.Close() // the first caller hangs up
		type got struct{ body, how string }
		joined := make(chan got)
		for _, resp := range []*http.Response{a.join(t), b.join(t), b.join(t, "Last-Event-ID: 2")} {
			go func() {
				body, err := io.ReadAll(resp.Body)
				joined <- got{string(body) + fmt.Sprint(err), resp.Header.Get(semelhttp.StreamHeader)}
			}()
		}
		write(3, 10_001)
		close(a.events)
		skipped := 0
		for range 3 {
			g := <-joined
			if g.body == strings.TrimPrefix(want.String(), event(1)+event(2))+"<nil>" {
				skipped++
			} else if g.body != want.String()+"<nil>" || g.how != semelhttp.StreamLive {
				t.Errorf("a duplicate got %d bytes of %d, %s", len(g.body), want.Len(), g.how)
			}
		}
		if skipped != 1 {
			t.Errorf("%d streams begin after the second event", skipped)
		}
		for _, n := range []*node{a, b} {
			for after, want := range map[string]string{"": want.String(), "9999": event(10_000), "10000": "", "another": want.String()} {
				resp := n.ask(t, "Last-Event-ID: "+after)
				body, err := io.ReadAll(resp.Body)
				if err != nil || string(body) != want || resp.Header.Get(semelhttp.StreamHeader) != semelhttp.StreamFinished || resp.Header.Get("Idempotency-Replayed") != "true" {
					t.Errorf("after %q: %d bytes of %d, %v, %v", after, len(body), len(want), resp.Header, err)
				}
			}
		}
		if runs.Load() != 1 {
			t.Errorf("the handler ran %d times", runs.Load())
		}
	})
}

// A node that is gone in the middle of a stream leaves a call that is held, and what it
// recorded is shown, but never as the outcome.
func TestAStreamWithoutItsNodeIsHeld(t *testing.T) {
	onEach(t, func(t *testing.T, open func() semel.Store) {
		var runs atomic.Int64
		a, b := newNode(t, open(), &runs, time.Second), newNode(t, open(), &runs, time.Second)
		first := a.ask(t)
		defer first.Body.Close()
		a.events <- event(1)
		live := b.join(t)
		in := bufio.NewReader(live.Body)
		if line, err := in.ReadString('\n'); err != nil || line != "id: 1\n" {
			t.Fatalf("%q, %v", line, err)
		}
		a.store.off.Store(true)
		for {
			resp := b.ask(t, "Accept: text/event-stream")
			if resp.Header.Get(semelhttp.StreamHeader) == semelhttp.StreamLive {
				_, _ = io.ReadAll(resp.Body) // until it breaks off
				continue
			}
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusConflict || resp.Header.Get(semelhttp.StreamHeader) != semelhttp.StreamPartial {
				t.Fatalf("%s, %v, %s, %v", resp.Status, resp.Header, body, err)
			}
			if text := string(body); !strings.HasPrefix(text, event(1)+"event: semel.refusal\ndata: {") || !strings.Contains(text, `"code":"held"`) {
				t.Errorf("%s", text)
			}
			break
		}
		if _, err := io.ReadAll(in); err == nil {
			t.Error("whoever had joined took a part for the whole")
		}
		if resp := b.ask(t); resp.StatusCode != http.StatusConflict || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s, %v", resp.Status, resp.Header)
		}
		if runs.Load() != 1 {
			t.Errorf("the handler ran %d times", runs.Load())
		}
		close(a.events)
		if text, err := io.ReadAll(first.Body); err == nil {
			t.Errorf("the first caller took %q for the outcome, which isn't durable", text)
		}
	})
}

// A purge takes the stream along.
func TestAPurgeDeletesTheStream(t *testing.T) {
	st := memstore.New()
	n := newNode(t, st, new(atomic.Int64), 0)
	go func() {
		for i := range 3 {
			n.events <- event(i)
		}
		close(n.events)
	}()
	_, _ = io.ReadAll(n.ask(t).Body)
	cells := func() int {
		page, err := st.Search(t.Context(), store.Query{Operation: segments.Operation, Limit: 100})
		must(t, err)
		return len(page.Records)
	}
	if cells() == 0 {
		t.Fatal("there is no cell")
	}
	page, err := n.engine.Search(t.Context(), store.Query{Operation: "op"})
	must(t, err)
	must(t, n.engine.Purge(t.Context(), page.Records[0].ID, semel.Removal{Reason: "test", Who: "test"}))
	if left := cells(); left != 0 {
		t.Errorf("%d cells are left", left)
	}
}
