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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/transport/semelhttp"
	"github.com/semelhq/semel/transport/semelproxy"
)

// ledger is the upstream. It knows nothing of keys: it does what it is asked to, and
// can say what it has done for an order.
type ledger struct {
	mu   sync.Mutex
	done map[string][]string // the answers to each order
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
	l.mu.Lock()
	answer := fmt.Sprintf(`{"order":%q,"receipt":%d}`, order, len(l.done)+1)
	l.done[string(order)] = append(l.done[string(order)], answer)
	l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, answer)
}

// reconcile tells what became of an order whose node died, which it can because the
// key is the order's name.
func (l *ledger) reconcile(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	answers := l.done[r.URL.Query().Get("key")]
	l.mu.Unlock()
	found := semelproxy.Finding{Outcome: "aborted"} // it was never here, and whoever might send it is dead
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
	book := &ledger{done: map[string][]string{}}
	upstream := httptest.NewServer(book)
	defer upstream.Close()
	dir, err := os.MkdirTemp("", "semel-cluster-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var nodes []*node
	defer func() {
		for _, n := range nodes {
			n.stop()
		}
	}()
	for i := range o.nodes {
		n, err := newNode(dir, i, o.store, upstream.URL)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}

	s := &summary{Store: kind(o.store), Nodes: o.nodes, Orders: o.orders}
	run := fmt.Sprintf("%d", time.Now().UnixNano()) // no order of an earlier run
	got := make([]map[string]bool, o.orders)
	var mu sync.Mutex
	jobs := make(chan int)
	var deliveries atomic.Int64
	failed := make(chan error, 1)
	var senders sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := &http.Client{Timeout: 10 * time.Second, Transport: &semelhttp.SafeTransport{Base: &http.Transport{MaxIdleConnsPerHost: 32}}}
	for range 24 {
		senders.Go(func() {
			for i := range jobs {
				order := fmt.Sprintf("order-%s-%d", run, i)
				answer, err := deliver(ctx, client, nodes, order, &deliveries)
				if err != nil {
					select {
					case failed <- err:
					default:
					}
					cancel(err)
					continue
				}
				mu.Lock()
				if got[i] == nil {
					got[i] = map[string]bool{}
				}
				got[i][answer] = true
				mu.Unlock()
			}
		})
	}
	// Copies of an order are close together, and now and then at the same time. The
	// nodes are killed at even distances, one after the other.
	total := o.orders * o.copies
	for i := range total {
		if s.Kills < o.kills && i == (s.Kills+1)*total/(o.kills+1) {
			n := nodes[s.Kills%len(nodes)]
			n.kill()
			s.Kills++
			if err := n.start(); err != nil {
				cancel(err)
			}
		}
		select {
		case jobs <- i / o.copies:
		case <-ctx.Done():
		}
	}
	close(jobs)
	senders.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
	}
	book.mu.Lock()
	defer book.mu.Unlock()
	for _, answers := range book.done {
		s.Effects += len(answers)
		if len(answers) > 1 {
			s.Repeated++
		}
	}
	for _, answers := range got {
		if len(answers) > 0 {
			s.Answered++
		}
		if len(answers) > 1 {
			s.Differing++
		}
	}
	s.Deliveries = deliveries.Load()
	return s, nil
}

// deliver sends an order to any of the nodes, again and again until it has the
// upstream's answer.
func deliver(ctx context.Context, client *http.Client, nodes []*node, order string, deliveries *atomic.Int64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	last := "nothing was sent"
	for pause := 20 * time.Millisecond; ; pause = min(pause*2, time.Second) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, nodes[rand.IntN(len(nodes))].address()+"/orders", strings.NewReader(order))
		if err != nil {
			return "", err
		}
		r.Header.Set("Idempotency-Key", order)
		deliveries.Add(1)
		if resp, err := client.Do(r); err != nil {
			last = err.Error()
		} else {
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err == nil && resp.StatusCode == http.StatusOK {
				return string(body), nil
			}
			last = fmt.Sprintf("%s: %s", resp.Status, body)
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return "", fmt.Errorf("%s was not answered: %s", order, last)
		case <-timer.C:
		}
	}
}
