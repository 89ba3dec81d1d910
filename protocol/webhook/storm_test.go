package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/internal/thorough"
	"github.com/semelhq/semel/protocol/webhook"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/store/pgstore"
)

// What the process of a node is told by its environment.
const (
	stormStore = "SEMEL_WEBHOOK_STORM_STORE"
	stormSink  = "SEMEL_WEBHOOK_STORM_SINK"

	stormSecret = "the secret of the storm"
)

func TestMain(m *testing.M) {
	if os.Getenv(stormStore) != "" {
		fmt.Fprintln(os.Stderr, runNode())
		os.Exit(1)
	}
	os.Exit(pgtest.Main(m))
}

// runNode is a node: a receiver and a dispatcher on a store. It ends when its standard
// input does, which is when the test is gone.
func runNode() error {
	ctx := context.Background()
	st, err := openStorm(ctx, os.Getenv(stormStore))
	if err != nil {
		return err
	}
	engine, err := semel.New(st, nil)
	if err != nil {
		return err
	}
	source, err := webhook.Builtin("github")
	if err != nil {
		return err
	}
	sink, err := dispatch.HTTP(dispatch.HTTPOptions{URL: os.Getenv(stormSink), AllowPrivate: true})
	if err != nil {
		return err
	}
	r, err := webhook.New(engine, webhook.Options{
		VerifierOptions: webhook.VerifierOptions{Source: source, Secrets: []string{stormSecret}},
		Handle: func(ctx context.Context, e *webhook.Event) error {
			return sink.Deliver(ctx, dispatch.Delivery{Message: &semel.Message{ID: e.ID, Payload: e.Body}})
		},
	})
	if err != nil {
		return err
	}
	d, err := dispatch.New(engine, dispatch.Options{Interval: 50 * time.Millisecond, Destinations: map[string]dispatch.Destination{
		r.Destination(): {
			Sender:  dispatch.SenderFunc(func(ctx context.Context, d dispatch.Delivery) error { return r.Work(ctx, d.Message.Payload) }),
			Timeout: time.Minute, Lease: time.Second, MinBackoff: 10 * time.Millisecond, BreakAfter: -1,
		},
	}})
	if err != nil {
		return err
	}
	go func() { _ = d.Run(ctx) }()
	go func() { _ = engine.Run(ctx, time.Second) }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(l, r)
}

func openStorm(ctx context.Context, url string) (semel.Store, error) {
	if dir, ok := strings.CutPrefix(url, "pebble:"); ok {
		return pebblestore.Open(dir, nil)
	}
	return pgstore.Open(ctx, url, &pgstore.Options{Migrate: true})
}

// storm is senders, nodes that are killed, and what gets the events.
type storm struct {
	t     *testing.T
	store string
	nodes []atomic.Pointer[stormNode]

	sink     *httptest.Server
	mu       sync.Mutex
	ids      map[string]string // of events, by their bodies
	effects  map[string]int    // arrivals by id
	wrong    []string
	complete chan struct{} // closed when every event has arrived
	events   int
}

type stormNode struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
}

// TestStorm has senders deliver every event several times, in random order, while some
// hang up and nodes are killed. Each event arrives under one id of its own, and none is
// lost.
func TestStorm(t *testing.T) {
	events, kills := 10_000, 12
	if !thorough.Run() {
		events, kills = thorough.Scaled(500), 2
	}
	t.Run("on Pebble", func(t *testing.T) { newStorm(t, "pebble:"+t.TempDir(), 1, events).run(kills) })
	t.Run("on PostgreSQL", func(t *testing.T) {
		server := pgtest.Shared(t)
		newStorm(t, server.URL(server.Database(t)), 2, events).run(kills)
	})
}

func newStorm(t *testing.T, store string, nodes, events int) *storm {
	s := &storm{
		t: t, store: store, nodes: make([]atomic.Pointer[stormNode], nodes), events: events,
		ids: map[string]string{}, effects: map[string]int{}, complete: make(chan struct{}),
	}
	s.sink = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			s.arrived(string(body), r.Header.Get("webhook-id"))
		}
	}))
	t.Cleanup(s.sink.Close)
	for i := range s.nodes {
		s.start(i)
	}
	t.Cleanup(func() {
		for i := range s.nodes {
			s.kill(i)
		}
	})
	return s
}

func (s *storm) arrived(body, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other, ok := s.ids[body]; ok && other != id {
		s.wrong = append(s.wrong, body+" has the ids "+other+" and "+id)
	}
	s.ids[body] = id
	s.effects[id]++
	if len(s.ids) == s.events && s.complete != nil {
		close(s.complete)
		s.complete = nil
	}
}

func (s *storm) start(i int) {
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	n := &stormNode{cmd: exec.Command(exe)}
	n.cmd.Env = append(os.Environ(), stormStore+"="+s.store, stormSink+"="+s.sink.URL)
	n.cmd.Stderr = os.Stderr
	out, err := n.cmd.StdoutPipe()
	if err == nil {
		n.stdin, err = n.cmd.StdinPipe()
	}
	if err == nil {
		err = n.cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.t.Errorf("a node did not start: %v", err)
	}
	n.url = strings.TrimSpace(line)
	s.nodes[i].Store(n)
}

// kill ends a node as kill -9 does.
func (s *storm) kill(i int) {
	n := s.nodes[i].Load()
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
	_ = n.stdin.Close()
}

func (s *storm) run(kills int) {
	const copies, senders = 5, 32
	complete := s.complete
	order := rand.Perm(s.events * copies)
	work, done := make(chan int), make(chan struct{}, len(order))
	var group sync.WaitGroup
	for range senders {
		group.Go(func() {
			for n := range work {
				s.send(n % s.events)
				done <- struct{}{}
			}
		})
	}
	go func() {
		defer close(work)
		for _, n := range order {
			work <- n
		}
	}()
	for n := 1; n <= len(order); n++ {
		<-done
		if n%(len(order)/(kills+1)) == 0 && n < len(order) {
			i := rand.IntN(len(s.nodes))
			s.kill(i)
			s.start(i)
		}
	}
	group.Wait()
	<-complete // the deadline of the test is that of events which are lost
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.effects) != s.events || len(s.wrong) > 0 {
		s.t.Errorf("%d events have %d ids: %q", s.events, len(s.effects), s.wrong)
	}
	again := 0
	for _, n := range s.effects {
		again += n - 1
	}
	s.t.Logf("%d events in %d deliveries, %d kills: each under one id, %d arrived again under theirs", s.events, len(order), kills, again)
}

// send delivers an event until it is answered with 200, as a sender does that waits for a
// random time, and sometimes for none.
func (s *storm) send(event int) {
	body := fmt.Appendf(nil, `{"event":%d}`, event)
	source, err := webhook.Builtin("github")
	if err != nil {
		s.t.Error(err)
		return
	}
	for {
		patience := time.Minute
		if rand.IntN(10) == 0 {
			patience = rand.N(5 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), patience)
		err := post(ctx, s.nodes[rand.IntN(len(s.nodes))].Load().url, event, body, source)
		cancel()
		if err == nil || s.t.Context().Err() != nil {
			return
		}
		select { // a node that was killed is back soon
		case <-time.After(5 * time.Millisecond):
		case <-s.t.Context().Done():
		}
	}
}

func post(ctx context.Context, url string, event int, body []byte, source *webhook.Source) error {
	d := &webhook.Delivery{Header: http.Header{"X-Github-Delivery": {fmt.Sprint("event-", event)}, "X-Github-Event": {"push"}}, Body: body}
	if err := source.Sign(d, stormSecret, "", time.Now()); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = d.Header
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(string(text))
	}
	return err
}
