package dispatch

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestOnPostgreSQL(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	url := server.URL(server.Database(t))
	twoNodes(t, func() semel.Store {
		st, err := pgstore.Open(t.Context(), url, &pgstore.Options{Migrate: true})
		must(t, err)
		return st
	})
}

func TestOnRedis(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t, "always").URL()
	twoNodes(t, func() semel.Store {
		st, err := redisstore.Open(t.Context(), url, nil)
		must(t, err)
		return st
	})
}

// twoNodes has two processes, each with a store of its own on one server, deliver in
// order and without. One dies on the way.
func twoNodes(t *testing.T, open func() semel.Store) {
	r := &receiver{answer: func(d Delivery) error {
		if d.Try == 1 && d.Message.Order != "" && d.Message.Payload[0] == '3' {
			return fmt.Errorf("busy")
		}
		return nil
	}}
	opts := Options{Interval: 20 * time.Millisecond, Destinations: map[string]Destination{
		"hook": {Sender: r, Lease: time.Second, MinBackoff: 50 * time.Millisecond},
	}}
	stores := []semel.Store{open(), open()}
	for _, st := range stores {
		t.Cleanup(func() { must(t, st.Close()) })
	}
	a, b := start(t, stores[0], "a", opts), start(t, stores[1], "b", opts)
	var ids []semel.ID
	const many = 40
	for i := range many {
		e := a.engine
		if i%2 == 1 || i > many/2 {
			e = b.engine
		}
		ids = append(ids, complete(t, e, fmt.Sprint(i), message(fmt.Sprint(i), "lane"), message(fmt.Sprint(i, "-loose"), "")))
		if i == many/2 {
			a.die()
		}
	}
	eventually(t, 60*time.Second, "every message is delivered", func() bool {
		for _, id := range ids {
			rec, err := stores[1].Get(t.Context(), id)
			must(t, err)
			for _, m := range rec.Outbox {
				if m.State != store.MessageDelivered {
					return false
				}
			}
		}
		return true
	})
	_, taken := r.seen()
	var first []string
	loose := map[string]bool{}
	for _, name := range taken {
		if len(name) > 3 {
			loose[name] = true
		} else if !slices.Contains(first, name) {
			first = append(first, name)
		}
	}
	if len(first) != many || len(loose) != many {
		t.Fatalf("taken as %v, and %d of %d without an order", first, len(loose), many)
	}
	// Who completed first is told by the times that the nodes give, each by its own
	// estimate of the store's clock. What one node completed is in order; of two
	// nodes, what was completed within the error of that may change places.
	const clockError = 20 * time.Millisecond
	at := make([]store.Instant, many)
	for i, id := range ids {
		rec, err := stores[1].Get(t.Context(), id)
		must(t, err)
		at[i] = rec.EndedAt
	}
	fromB := func(i int) bool { return i%2 == 1 || i > many/2 }
	for later, name := range first {
		for _, before := range first[:later] {
			var i, j int
			if _, err := fmt.Sscan(name+" "+before, &i, &j); err != nil {
				t.Fatal(err)
			}
			if i < j && (fromB(i) == fromB(j) || at[j].Sub(at[i]) > clockError) {
				t.Errorf("%d was taken after %d, which was completed %v later; all: %v", i, j, at[j].Sub(at[i]), first)
			}
		}
	}
}
