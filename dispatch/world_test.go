package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// receiver takes messages, and remembers what it took.
type receiver struct {
	// answer is what it says to a try; nil takes everything.
	answer func(d Delivery) error

	mu    sync.Mutex
	tries []string       // names of messages, in the order of the tries
	taken []string       // those that were taken, in the order of taking
	ids   map[string]int // how often each id was tried
	names map[string]string
	at    []time.Time // of the tries
}

func (r *receiver) Deliver(_ context.Context, d Delivery) error {
	var err error
	if r.answer != nil {
		err = r.answer(d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids == nil {
		r.ids, r.names = map[string]int{}, map[string]string{}
	}
	name := string(d.Message.Payload)
	r.tries = append(r.tries, name)
	r.at = append(r.at, time.Now())
	r.ids[d.Message.ID]++
	if other, ok := r.names[name]; ok && other != d.Message.ID {
		return Park("two_ids", fmt.Errorf("%s has two ids", name))
	}
	r.names[name] = d.Message.ID
	if err == nil {
		r.taken = append(r.taken, name)
	}
	return err
}

func (r *receiver) seen() (tries, taken []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tries), slices.Clone(r.taken)
}

// node is one process: an engine on a store whose faults can be steered, and a
// dispatcher.
type node struct {
	*Dispatcher
	engine *semel.Engine
	faults *faultstore.Control
	stop   context.CancelFunc
	done   chan struct{}
}

// start starts a node. It is stopped when the test ends, if not before.
func start(t *testing.T, st semel.Store, name string, opts Options, tune ...func(*Dispatcher)) *node {
	t.Helper()
	wrapped, faults := faultstore.New(keepOpen{st}, nil)
	e, err := semel.New(wrapped, &semel.Options{
		Node: name, StoreTimeout: 10 * time.Second,
		Operations: []semel.Operation{{Name: "op", OnAbandoned: semel.RetryAbandoned}},
	})
	must(t, err)
	d, err := New(e, opts)
	must(t, err)
	for _, f := range tune {
		f(d)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{d, e, faults, cancel, make(chan struct{})}
	go func() {
		defer close(n.done)
		if err := d.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(func() {
		n.faults.Heal() // or a node that is cut off tries to write until its time is up
		n.halt()
	})
	return n
}

// halt stops a node in an orderly way, as far as its store lets it.
func (n *node) halt() {
	n.stop()
	<-n.done
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = n.engine.Close(ctx)
}

// die cuts a node off from its store, for ever.
func (n *node) die() {
	n.faults.Cut(faultstore.NotApplied)
	n.stop()
}

// keepOpen is a store that several nodes share: closing the wrapper of one leaves it
// open.
type keepOpen struct{ semel.Store }

func (keepOpen) Close() error { return nil }

// complete runs a call that sends messages.
func complete(t *testing.T, e *semel.Engine, key string, messages ...semel.Message) semel.ID {
	t.Helper()
	_, err := e.Do(t.Context(), semel.Call{Tenant: "t", Operation: "op", Key: key}, func(_ context.Context, x semel.Execution) (semel.Result, error) {
		for _, m := range messages {
			if err := semel.Send(x, m); err != nil {
				return semel.Result{}, err
			}
		}
		return semel.Result{Data: []byte("done")}, nil
	})
	must(t, err)
	return semel.ID{Tenant: "t", Operation: "op", Key: key}
}

// message is one whose payload is its name, in a lane or none.
func message(name, order string) semel.Message {
	return semel.Message{Name: name, Destination: "hook", Payload: []byte(name), Order: order, ContentType: "text/plain"}
}

// pass lets time go by, which is virtual in a bubble.
func pass(d time.Duration) { <-time.After(d) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// state is how the first message of a call stands.
func state(t *testing.T, st semel.Store, id semel.ID) semel.Message {
	t.Helper()
	rec, err := st.Get(t.Context(), id)
	must(t, err)
	return rec.Outbox[0]
}

// eventually waits until f is true.
func eventually(t *testing.T, limit time.Duration, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !f(); {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		pass(5 * time.Millisecond)
	}
}

// one runs a test in virtual time with one node on a memory store.
func one(t *testing.T, dest Destination, body func(t *testing.T, st semel.Store, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		n := start(t, st, "one", Options{Destinations: map[string]Destination{"hook": dest}})
		body(t, st, n)
		n.halt()
	})
}
