package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// Behind a backlog of many pages, and sweeps of other engines, messages of a
// lane keep their order.
func TestOrderUnderABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const backlog = 5000
		st, r := memstore.New(), &receiver{}
		e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op"}}})
		must(t, err)
		complete(t, e, "older", message("older", "lane"))
		for i := range backlog {
			complete(t, e, fmt.Sprint(i), message(fmt.Sprint(i), ""))
		}
		pass(time.Second)
		complete(t, e, "younger", message("younger", "lane"))
		opts := Options{Destinations: map[string]Destination{"hook": {Sender: r}}}
		// One that sweeps, and never looks: it has died by then.
		dead, err := semel.New(st, nil)
		must(t, err)
		_, err = New(dead, opts)
		must(t, err)
		for range 5 {
			pass(time.Second)
			_, err := dead.Sweep(t.Context())
			must(t, err)
			_, err = e.Sweep(t.Context()) // which has no dispatcher
			must(t, err)
		}
		n := start(t, st, "n", opts, func(d *Dispatcher) { d.limit = 64 })
		pass(10 * time.Minute)
		_, taken := r.seen()
		if len(taken) != backlog+2 || slices.Index(taken, "older") > slices.Index(taken, "younger") {
			t.Errorf("%d delivered; the older at place %d, the younger at %d", len(taken), slices.Index(taken, "older"), slices.Index(taken, "younger"))
		}
		n.halt()
		must(t, e.Close(t.Context()))
		must(t, dead.Close(t.Context()))
	})
}

// A dispatcher leaves alone what is for destinations that it does not know, and finds
// its own messages behind them.
func TestMessagesForOthersHideNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others = 5000
		st, r, rest := memstore.New(), &receiver{}, &receiver{}
		e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op"}}})
		must(t, err)
		before := map[semel.ID]store.Revision{}
		for i := range others {
			m := message(fmt.Sprint(i), []string{"", "lane"}[i%2])
			m.Destination = "other"
			id := complete(t, e, fmt.Sprint(i), m)
			rec, err := st.Get(t.Context(), id)
			must(t, err)
			before[id] = rec.Revision
			pass(time.Microsecond) // or they have no order
		}
		pass(time.Second)
		for _, name := range sequence(3) {
			complete(t, e, "mine "+name, message(name, "lane"))
			pass(time.Millisecond)
		}
		n := start(t, st, "n", Options{Destinations: map[string]Destination{"hook": {Sender: r}}})
		pass(time.Minute)
		if _, taken := r.seen(); !slices.Equal(taken, sequence(3)) {
			t.Errorf("delivered %q", taken)
		}
		for id, revision := range before {
			if rec, err := st.Get(t.Context(), id); err != nil || rec.Revision != revision {
				t.Fatalf("the messages of another were touched: %v", err)
			}
		}
		// The one that knows them takes them up in their order.
		other := start(t, st, "other", Options{Destinations: map[string]Destination{"other": {Sender: rest}}})
		pass(20 * time.Minute)
		_, taken := rest.seen()
		var ordered []string
		for _, name := range taken {
			var i int
			if _, err := fmt.Sscan(name, &i); err == nil && i%2 == 1 {
				ordered = append(ordered, fmt.Sprintf("%05d", i))
			}
		}
		if len(taken) != others || !slices.IsSorted(ordered) {
			t.Errorf("%d of %d delivered, %d of a lane, in order: %v", len(taken), others, len(ordered), slices.IsSorted(ordered))
		}
		n.halt()
		other.halt()
		must(t, e.Close(t.Context()))
	})
}
