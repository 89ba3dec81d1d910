package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// TestWhatWasGivenUpIsNotSent, even by a dispatcher that waits for its turn meanwhile.
func TestWhatWasGivenUpIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, rate, taker := memstore.New(), semel.Rate{PerSecond: 1.0 / 600, Burst: 1}, &receiver{}
		a := start(t, st, "a", Options{Destinations: map[string]Destination{"hook": {Sender: taker, Rate: rate}}})
		defer a.halt()
		complete(t, a.engine, "one", message("one", "")) // takes the token of a
		pass(5 * time.Second)
		call := complete(t, a.engine, "two", message("two", "")) // a waits ten minutes for the next
		pass(5 * time.Second)
		refuser := &receiver{answer: func(Delivery) error { return Park("refused", errors.New("422")) }}
		b := start(t, st, "b", Options{Destinations: map[string]Destination{"hook": {Sender: refuser, Rate: rate}}})
		defer b.halt()
		pass(time.Minute)
		_, err := Discard(t.Context(), b.engine.Internal(), call, state(t, st, call).ID, "nobody wants it any more")
		must(t, err)
		pass(20 * time.Minute)
		if _, taken := taker.seen(); !slices.Equal(taken, []string{"one"}) || state(t, st, call).State != store.MessageDiscarded {
			t.Errorf("sent are %v, and it is %s", taken, state(t, st, call).State)
		}
	})
}

// TestAPageIsNotMadeAgain behind the first one of its lane, by a dispatcher that looked at the lane
// long ago: nobody would read it.
func TestAPageIsNotMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, r := memstore.New(), &receiver{}
		opts := Options{Destinations: map[string]Destination{"hook": {Sender: r}}}
		// The scan of b is so slow that its steps are called here.
		engine, err := semel.New(keepOpen{st}, &semel.Options{Node: "b", Operations: []semel.Operation{{Name: "op"}}})
		must(t, err)
		defer func() { must(t, engine.Close(t.Context())) }()
		b, err := New(engine, opts)
		must(t, err)
		id := laneID{Tenant: complete(t, engine, "first", message("first", "another")).Tenant, Destination: "hook", Order: "lane"}
		before, err := b.loadTail(t.Context(), id)
		must(t, err)
		a := start(t, st, "a", opts)
		for i := range pageSize {
			complete(t, a.engine, fmt.Sprint("a", i), message(fmt.Sprint(i), "lane"))
		}
		pass(2 * time.Second)
		a.halt()
		late := complete(t, engine, "late", message("late", "lane"))
		rec, err := st.Get(t.Context(), late)
		must(t, err)
		m, _ := b.fresh(rec, 0, rec.UpdatedAt)
		if err := b.extend(t.Context(), id, before, []laneMessage{m}); !errors.Is(err, errChanged) {
			t.Errorf("it extends the lane: %v", err)
		}
		c := start(t, st, "c", opts)
		defer c.halt()
		pass(time.Minute)
		if _, taken := r.seen(); len(taken) != pageSize+2 || !slices.Contains(taken, "late") {
			t.Errorf("%d messages are delivered", len(taken))
		}
	})
}
