package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/transport/safehttp"
	"github.com/semelhq/semel/transport/semelproxy"
)

// ledger is the upstream. It ignores keys: it executes every request, and can say what it
// has done for an order.
type ledger struct {
	work time.Duration // how long an order takes

	mu    sync.Mutex
	done  map[string][]string // the answers to each order
	asked int                 // about orders, by reconcile
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/reconcile" {
		l.reconcile(w, r)
		return
	}
	order, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	time.Sleep(l.work)
	l.mu.Lock()
	answer := fmt.Sprintf(`{"order":%q,"receipt":%d}`, order, len(l.done)+1)
	l.done[string(order)] = append(l.done[string(order)], answer)
	l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, answer)
}

// reconcile says what happened to an order whose node died; it finds the order because
// the key is the order's name.
func (l *ledger) reconcile(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.asked++
	answers := l.done[r.URL.Query().Get("key")]
	l.mu.Unlock()
	found := semelproxy.Finding{Outcome: "aborted"} // it never arrived, and its sender is dead
	if len(answers) > 0 {
		found = semelproxy.Finding{
			Outcome: "completed", Status: http.StatusOK, Body: []byte(answers[0]),
			Headers: map[string][]string{"Content-Type": {"application/json"}},
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found)
}

// play is the whole run.
func play(ctx context.Context, o *options) (_ *summary, err error) {
	book := &ledger{work: o.work, done: map[string][]string{}}
	upstream := httptest.NewServer(book)
	defer upstream.Close()
	dir, err := os.MkdirTemp("", "semel-cluster-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l := &load{
		nodes: make([]*node, 0, o.nodes), got: map[string]map[string]bool{}, again: map[string]int{},
		client: &http.Client{Timeout: 10 * time.Second, Transport: &safehttp.Transport{Base: &http.Transport{MaxIdleConnsPerHost: 32}}},
	}
	defer func() {
		for _, n := range l.nodes {
			n.stop()
		}
	}()
	for i := range o.nodes {
		n, err := newNode(dir, i, o, upstream.URL)
		if err != nil {
			return nil, err
		}
		l.nodes = append(l.nodes, n)
	}
	s := &summary{Store: kind(o.store), Nodes: o.nodes, Restarts: o.restarts}
	if err := l.run(ctx, o, s); err != nil {
		return nil, err
	}
	book.mu.Lock()
	defer book.mu.Unlock()
	s.Held = book.asked
	for _, answers := range book.done {
		s.Effects += len(answers)
		if len(answers) > 1 {
			s.Repeated++
		}
	}
	for _, answers := range l.got {
		if len(answers) > 0 {
			s.Answered++
		}
		if len(answers) > 1 {
			s.Differing++
		}
	}
	s.Deliveries, s.Again = l.deliveries.Load(), l.again
	return s, nil
}

// load is the callers, and their answers.
type load struct {
	nodes               []*node
	client              *http.Client
	deliveries, answers atomic.Int64

	mu    sync.Mutex
	got   map[string]map[string]bool // the answers to each order
	again map[string]int             // why deliveries were repeated
}

// run sends the orders while nodes are killed or restarted.
func (l *load) run(ctx context.Context, o *options, s *summary) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan string)
	var senders sync.WaitGroup
	for range 24 {
		senders.Go(func() {
			for order := range jobs {
				if err := l.deliver(ctx, order); err != nil {
					cancel(err)
				}
			}
		})
	}
	rolled := make(chan struct{})
	go func() {
		defer close(rolled)
		var err error
		if s.Meanwhile, err = roll(ctx, l.nodes, o.restarts, &l.answers); err != nil {
			cancel(err)
		}
	}()
	name := fmt.Sprintf("order-%d", time.Now().UnixNano()) // unlike those of earlier runs
	for ctx.Err() == nil && (s.Orders < o.orders || !ended(rolled)) {
		// The nodes are killed at even distances, one after the other.
		if s.Kills < o.kills && s.Orders >= (s.Kills+1)*o.orders/(o.kills+1) {
			n := l.nodes[s.Kills%len(l.nodes)]
			n.kill()
			s.Kills++
			if err := n.start(); err != nil {
				cancel(err)
			}
		}
		order := fmt.Sprintf("%s-%d", name, s.Orders)
		s.Orders++
		// Copies of an order are close together, and now and then at the same
		// time.
		for range o.copies {
			select {
			case jobs <- order:
			case <-ctx.Done():
			}
		}
	}
	close(jobs)
	senders.Wait()
	<-rolled
	return context.Cause(ctx)
}

func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// deliver sends an order to any of the nodes, and repeats it until it gets the upstream's
// answer.
func (l *load) deliver(ctx context.Context, order string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for pause := 20 * time.Millisecond; ; pause = min(pause*2, time.Second) {
		answer, why, err := l.send(ctx, l.nodes[rand.IntN(len(l.nodes))].address(), order)
		if err == nil {
			l.answers.Add(1)
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.got[order] == nil {
				l.got[order] = map[string]bool{}
			}
			l.got[order][answer] = true
			return nil
		}
		l.mu.Lock()
		l.again[why]++
		l.mu.Unlock()
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%s was not answered: %w", order, err)
		case <-timer.C:
		}
	}
}

// send is one delivery. Why is the status that was not 200, or "connection".
func (l *load) send(ctx context.Context, node, order string) (answer, why string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, node+"/orders", strings.NewReader(order))
	if err != nil {
		return "", "request", err
	}
	r.Header.Set("Idempotency-Key", order)
	l.deliveries.Add(1)
	resp, err := l.client.Do(r)
	if err != nil {
		return "", "connection", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", "connection", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", strconv.Itoa(resp.StatusCode), fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), "", nil
}
