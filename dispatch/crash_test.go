package dispatch

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// roundsFlag is how many histories each harm at each point gets at least.
var roundsFlag = flag.Uint64("dispatch.rounds", 2, "histories of each harm at each point")

// maxRounds is how many more it gets as long as it has not happened: which of two
// dispatchers comes to a point, and how often, is up to them.
const maxRounds = 20

// points are where a delivery can be interrupted.
var points = []string{"claimed", "sent", "completed", "failed", "settled", "enlisted", "woken"}

// harms are what happens to a dispatcher there.
var harms = []string{"crash", "error", "delay"}

// history is one run of two dispatchers, of which the first is harmed.
type history struct {
	store   semel.Store
	recv    *receiver
	lanes   map[string][]string // names in the order in which their calls completed
	loose   []string            // those without an order
	poison  map[string]bool     // those that are refused for good
	never   []string            // those of calls that failed
	records []semel.ID
	fired   int
}

// counts of all histories of a test.
type counts struct{ messages, tries, again, parked, fired, histories int }

func TestOutboxUnderFaults(t *testing.T) {
	clause.Proves(t, "IDS-XI.S2")
	stores := map[string]func(t *testing.T) semel.Store{
		"memstore": func(*testing.T) semel.Store { return memstore.New() },
		"pebblestore": func(t *testing.T) semel.Store {
			st, err := pebblestore.Open("store", &pebblestore.Options{FS: vfs.NewMem()})
			must(t, err)
			return st
		},
	}
	rounds := *roundsFlag
	if testing.Short() {
		rounds = 1
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			var total counts
			for _, point := range points {
				for _, harm := range harms {
					fired := total.fired
					for seed := uint64(0); seed < rounds || seed < rounds+maxRounds && total.fired == fired; seed++ {
						synctest.Test(t, func(t *testing.T) {
							st := open(t)
							t.Cleanup(func() { must(t, st.Close()) })
							runHistory(t, st, point, harm, seed, &total)
						})
					}
					if total.fired == fired {
						t.Errorf("%s at %s never happened", harm, point)
					}
				}
			}
			t.Logf("%d histories, %d faults, %d messages, %d tries, %d of them again, %d parked; 0 missing, 0 after rollback, 0 out of order",
				total.histories, total.fired, total.messages, total.tries, total.again, total.parked)
		})
	}
}

func runHistory(t *testing.T, st semel.Store, point, harm string, seed uint64, total *counts) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, uint64(len(point)*7+len(harm))))
	h := &history{store: st, lanes: map[string][]string{}, poison: map[string]bool{}}
	var mu sync.Mutex
	h.recv = &receiver{answer: func(d Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case h.poison[string(d.Message.Payload)]:
			return Park("poison", errors.New("it will never take that"))
		case random.IntN(4) == 0:
			return errors.New("busy")
		}
		return nil
	}}
	opts := Options{Interval: 100 * time.Millisecond, Destinations: map[string]Destination{"hook": {
		Sender: h.recv, Lease: 2 * time.Second, MinBackoff: 100 * time.Millisecond, MaxBackoff: 2 * time.Second, BreakAfter: -1, Concurrency: 4,
	}}}
	var first *node
	skip := 0
	if seed > 0 {
		skip = random.IntN(8)
	}
	harmed := func(d *Dispatcher) {
		d.crash = func(at string) error {
			mu.Lock()
			if at != point || h.fired > 0 && harm != "error" || h.fired > 4 {
				mu.Unlock()
				return nil
			}
			if skip > 0 {
				skip--
				mu.Unlock()
				return nil
			}
			h.fired++
			count := h.fired
			mu.Unlock()
			switch harm {
			case "crash":
				first.die()
				return errCrash
			case "error":
				forms := []faultstore.Form{faultstore.NotApplied, faultstore.Applied, faultstore.Late}
				first.faults.Next(faultstore.Apply, forms[count%len(forms)], 1)
				first.faults.Next(faultstore.Get, faultstore.NotApplied, 1)
				first.faults.Next(faultstore.Due, faultstore.NotApplied, 1)
			case "delay": // the process stands still for longer than its leases
				first.faults.Cut(faultstore.NotApplied)
				pass(5 * time.Second)
				first.faults.Heal()
			}
			return nil
		}
	}
	// The node is there before anything can happen to it.
	first = start(t, st, "first", opts, harmed)
	second := start(t, st, "second", opts)
	caller, err := semel.New(st, &semel.Options{Node: "caller", Operations: []semel.Operation{{Name: "op"}}})
	must(t, err)
	engines := []*semel.Engine{caller, second.engine}

	var calls sync.WaitGroup
	for lane := range 3 {
		calls.Go(func() {
			for i := range 12 {
				h.call(t, &mu, engines[i%2], fmt.Sprintf("lane%d", lane), i)
				pass(time.Duration(20*lane+1) * time.Millisecond)
			}
		})
	}
	calls.Wait()
	if harm == "crash" {
		pass(time.Second)
		third := start(t, st, "third", opts)
		defer third.halt()
	}
	h.quiet(t)
	first.halt()
	second.halt()
	must(t, caller.Close(t.Context()))
	pass(10 * time.Second) // the leases of a node that has crashed end
	h.check(t, total)
	if t.Failed() {
		t.Fatalf("%s at %s, seed %d", harm, point, seed)
	}
}

// call runs one call of a lane, which sends a message in the lane and another
// without an order, or fails.
func (h *history) call(t *testing.T, mu *sync.Mutex, e *semel.Engine, lane string, i int) {
	name := fmt.Sprintf("%s-%d", lane, i)
	fails := i%5 == 3
	mu.Lock()
	h.poison[name] = i == 4
	mu.Unlock()
	id := semel.ID{Tenant: "t", Operation: "op", Key: name}
	_, err := e.Do(t.Context(), semel.Call{Tenant: id.Tenant, Operation: id.Operation, Key: id.Key}, func(_ context.Context, x semel.Execution) (semel.Result, error) {
		for _, m := range []semel.Message{message(name, lane), message(name+"-loose", "")} {
			if err := semel.Send(x, m); err != nil {
				return semel.Result{}, err
			}
		}
		if fails {
			return semel.Result{}, errors.New("rolled back")
		}
		return semel.Result{}, nil
	})
	if (err != nil) != fails {
		t.Errorf("%s: %v", name, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if fails {
		h.never = append(h.never, name, name+"-loose")
		return
	}
	h.records = append(h.records, id)
	h.lanes[lane] = append(h.lanes[lane], name)
	h.loose = append(h.loose, name+"-loose")
}

// quiet waits until nothing is pending.
func (h *history) quiet(t *testing.T) {
	t.Helper()
	for range 600 {
		pending := 0
		for _, id := range h.records {
			rec, err := h.store.Get(t.Context(), id)
			must(t, err)
			for _, m := range rec.Outbox {
				if m.State == store.MessagePending {
					pending++
				}
			}
		}
		if pending == 0 {
			return
		}
		pass(500 * time.Millisecond)
	}
	for _, id := range h.records {
		rec, _ := h.store.Get(t.Context(), id)
		for _, m := range rec.Outbox {
			if m.State == store.MessagePending {
				t.Errorf("after 5 minutes %s is pending: %d tries, next at %v", m.Name, m.Tries, m.NextAt)
			}
		}
	}
}

// check is what must be true after every history.
func (h *history) check(t *testing.T, total *counts) {
	t.Helper()
	tries, taken := h.recv.seen()
	for _, name := range h.never {
		if slices.Contains(tries, name) {
			t.Errorf("%s was sent, and its call failed", name)
		}
	}
	parked := 0
	for _, id := range h.records {
		rec, err := h.store.Get(t.Context(), id)
		must(t, err)
		for _, m := range rec.Outbox {
			want := store.MessageDelivered
			if h.poison[m.Name] {
				want = store.MessageParked
				parked++
			} else if !slices.Contains(taken, m.Name) {
				t.Errorf("%s was never taken", m.Name)
			}
			if m.State != want {
				t.Errorf("%s is %s, not %s", m.Name, m.State, want)
			}
			if id, ok := h.recv.names[m.Name]; !ok || id != m.ID {
				t.Errorf("%s was sent as %q and not as %q", m.Name, id, m.ID)
			}
		}
	}
	for lane, sent := range h.lanes {
		var first []string
		for _, name := range taken {
			if slices.Contains(sent, name) && !slices.Contains(first, name) {
				first = append(first, name)
			}
		}
		want := slices.DeleteFunc(slices.Clone(sent), func(name string) bool { return h.poison[name] })
		if !slices.Equal(first, want) {
			t.Errorf("%s was taken as %v, not %v", lane, first, want)
		}
	}
	total.histories++
	total.messages += 2 * len(h.records)
	total.tries += len(tries)
	total.again += len(taken) - 2*len(h.records) + parked
	total.parked += parked
	total.fired += h.fired
}
