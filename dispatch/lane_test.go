package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// sequence is what is sent as 0, 1, 2 and so on.
func sequence(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint(i))
	}
	return names
}

func TestOrder(t *testing.T) {
	down := errors.New("down")
	t.Run("a message waits until the one before it is delivered", func(t *testing.T) {
		var up atomic.Bool
		r := &receiver{answer: func(d Delivery) error {
			if !up.Load() && string(d.Message.Payload) == "0" {
				return down
			}
			return nil
		}}
		one(t, Destination{Sender: r, MaxBackoff: 5 * time.Minute, MaxTries: 1000}, func(t *testing.T, st semel.Store, n *node) {
			for _, name := range sequence(10) {
				complete(t, n.engine, name, message(name, "lane"))
				pass(time.Second)
			}
			complete(t, n.engine, "other", message("other", "another lane"))
			pass(3 * time.Hour)
			if _, taken := r.seen(); !slices.Equal(taken, []string{"other"}) {
				t.Fatal(taken)
			}
			up.Store(true)
			pass(6 * time.Minute)
			if _, taken := r.seen(); !slices.Equal(taken, append([]string{"other"}, sequence(10)...)) {
				t.Fatal(taken)
			}
		})
	})
	t.Run("one that is parked lets the others pass, and is last when it is replayed", func(t *testing.T) {
		var up atomic.Bool
		r := &receiver{answer: func(d Delivery) error {
			if !up.Load() && string(d.Message.Payload) == "1" {
				return Park("poison", down)
			}
			return nil
		}}
		one(t, Destination{Sender: r}, func(t *testing.T, st semel.Store, n *node) {
			var ids []semel.ID
			for _, name := range sequence(4) {
				ids = append(ids, complete(t, n.engine, name, message(name, "lane")))
				pass(time.Millisecond)
			}
			pass(time.Minute)
			up.Store(true)
			_, err := Replay(t.Context(), n.engine.Internal(), ids[1], state(t, st, ids[1]).ID, "the receiver is back")
			must(t, err)
			pass(time.Minute)
			if _, taken := r.seen(); !slices.Equal(taken, []string{"0", "2", "3", "1"}) {
				t.Fatal(taken)
			}
		})
	})
	t.Run("the order of a long line is kept over restarts, and its records go away", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const many = 5*pageSize + 7
			st, r := memstore.New(), &receiver{}
			var up atomic.Bool
			r.answer = func(Delivery) error {
				if !up.Load() {
					return down
				}
				return nil
			}
			opts := Options{Destinations: map[string]Destination{"hook": {Sender: r, MaxBackoff: 10 * time.Second, MaxTries: 1000}}}
			n := start(t, st, "a", opts)
			for i := range many {
				complete(t, n.engine, fmt.Sprint(i), message(fmt.Sprint(i), "lane"))
				pass(10 * time.Millisecond)
				if i%100 == 50 {
					n.halt()
					n = start(t, st, fmt.Sprint(i), opts)
				}
			}
			up.Store(true)
			pass(5 * time.Minute)
			if _, taken := r.seen(); !slices.Equal(taken, sequence(many)) {
				t.Fatal(len(taken), taken)
			}
			left := func() int {
				page, err := st.Search(t.Context(), store.Query{Operation: slotOperation, Limit: 1000})
				must(t, err)
				return len(page.Records)
			}
			if left() != 2 {
				t.Fatalf("a lane without messages has %d records", left())
			}
			pass(2 * idleFor)
			_, err := n.engine.Sweep(t.Context())
			must(t, err)
			if left() != 0 {
				t.Fatal("the records of an idle lane were not purged")
			}
			complete(t, n.engine, "late", message("late", "lane"))
			pass(time.Minute)
			if _, taken := r.seen(); taken[len(taken)-1] != "late" {
				t.Fatal("a lane that was purged does not start again")
			}
			n.halt()
		})
	})
	t.Run("order is kept where more is due than one look can see", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const many = 100
			st, r := memstore.New(), &receiver{}
			e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op"}}})
			must(t, err)
			for i := range many {
				complete(t, e, fmt.Sprint(i), message(fmt.Sprint(i), "lane"))
				pass(time.Millisecond)
			}
			small := func(d *Dispatcher) { d.limit = 8 }
			opts := Options{Destinations: map[string]Destination{"hook": {Sender: r}}}
			a, b := start(t, st, "a", opts, small), start(t, st, "b", opts, small)
			pass(10 * time.Minute)
			if _, taken := r.seen(); !slices.Equal(taken, sequence(many)) {
				t.Fatal(len(taken), taken)
			}
			a.halt()
			b.halt()
			must(t, e.Close(t.Context()))
		})
	})
	t.Run("what is appended to a page while its last message is delivered is not left behind", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const before, after = pageSize - 1, 2 // which fill the page and begin another
			names := sequence(before + after)
			st, r := memstore.New(), &receiver{}
			var appending atomic.Bool
			delivered, woken := make(chan struct{}), make(chan struct{})
			r.answer = func(x Delivery) error {
				if x.Message.Name == names[before-1] {
					<-delivered
				}
				return nil
			}
			opts := Options{Destinations: map[string]Destination{"hook": {Sender: r, Timeout: time.Hour, Lease: time.Hour}}}
			n := start(t, st, "n", opts, func(d *Dispatcher) {
				d.crash = func(point string) error {
					if point == "enlisted" && appending.Load() {
						<-woken
					}
					return nil
				}
			})
			for i, name := range names {
				if i == before {
					pass(10 * time.Second)
					appending.Store(true)
				}
				complete(t, n.engine, name, message(name, "lane"))
				pass(time.Millisecond)
			}
			pass(10 * time.Second)
			close(delivered)
			pass(10 * time.Second)
			close(woken)
			pass(time.Minute)
			if _, taken := r.seen(); !slices.Equal(taken, names) {
				t.Errorf("%d of %d delivered: %q", len(taken), len(names), taken)
			}
			n.halt()
		})
	})
	t.Run("the messages of one call go out as they were sent", func(t *testing.T) {
		r := &receiver{}
		one(t, Destination{Sender: r}, func(t *testing.T, st semel.Store, n *node) {
			var all []semel.Message
			for _, name := range sequence(30) {
				all = append(all, message(name, "lane"))
			}
			complete(t, n.engine, "k", all...)
			pass(time.Minute)
			if _, taken := r.seen(); !slices.Equal(taken, sequence(30)) {
				t.Fatal(taken)
			}
		})
	})
	t.Run("a message that another is delivering is waited for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st, r := &index{Store: memstore.New()}, &receiver{}
			st.change.Store(new(changeFunc(func([]semel.Record) []semel.Record { return nil })))
			caller, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op"}}})
			must(t, err)
			n := start(t, st, "n", Options{Destinations: map[string]Destination{"hook": {Sender: r, Lease: 30 * time.Second}}})
			first := complete(t, caller, "0", message("0", "lane"))
			pass(time.Millisecond)
			complete(t, caller, "1", message("1", "lane"))
			claim, err := n.engine.Begin(t.Context(), semel.Call{Tenant: "t", Principal: deliverer, Operation: operation("hook"), Key: state(t, st, first).ID})
			must(t, err)
			claim.Attempt.Detach()
			st.change.Store(nil)
			pass(25 * time.Second)
			if tries, _ := r.seen(); len(tries) != 0 {
				t.Errorf("meanwhile %q were sent", tries)
			}
			pass(10 * time.Second)
			if _, taken := r.seen(); !slices.Equal(taken, sequence(2)) {
				t.Errorf("delivered %q", taken)
			}
			n.halt()
			must(t, caller.Close(t.Context()))
		})
	})
	t.Run("a lane whose holder died is taken up by another", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st, r := memstore.New(), &receiver{}
			opts := Options{Destinations: map[string]Destination{"hook": {Sender: r, Lease: 10 * time.Second}}}
			var a *node
			a = start(t, st, "a", opts, func(d *Dispatcher) {
				d.crash = func(point string) error {
					if tries, _ := r.seen(); point == "claimed" && len(tries) == 3 {
						a.die()
						return errCrash
					}
					return nil
				}
			})
			b := start(t, st, "b", opts, func(d *Dispatcher) { d.every = 20 * time.Second })
			var all []semel.Message
			for _, name := range sequence(8) {
				all = append(all, message(name, "lane"))
			}
			complete(t, a.engine, "k", all...)
			pass(2 * time.Minute)
			if _, taken := r.seen(); !slices.Equal(taken, sequence(8)) {
				t.Fatal(taken)
			}
			a.halt()
			b.halt()
			pass(time.Minute)
		})
	})
}
