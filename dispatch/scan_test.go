package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// index is a store of which a test sees, and changes, what the due index returns.
type index struct {
	*memstore.Store
	read   atomic.Int64 // records
	change atomic.Pointer[changeFunc]
}

type changeFunc func(recs []semel.Record) []semel.Record

func (x *index) Extras() store.Extras {
	extras := x.Store.Extras()
	extras.Due = x
	return extras
}

func (x *index) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	page, err := x.Store.Due(ctx, q)
	if change := x.change.Load(); change != nil {
		page.Records = (*change)(page.Records)
	}
	x.read.Add(int64(len(page.Records)))
	return page, err
}

// Where more is due than one look can see, in several seconds, a lane gets nothing of a
// second that wasn't seen whole: the due index has no order within a second.
func TestOrderWhereALookEndsWithinASecond(t *testing.T) {
	const seconds, each = 5, 7
	for name, arrange := range map[string]func(t *testing.T, st semel.Store, e *semel.Engine, random *rand.Rand) (want []string){
		"of messages as they were sent": func(t *testing.T, _ semel.Store, e *semel.Engine, _ *rand.Rand) []string {
			for i := range seconds * each {
				complete(t, e, fmt.Sprint(i), message(fmt.Sprint(i), "lane"))
				pass(time.Second / each)
			}
			return sequence(seconds * each)
		},
		// They are due when they were replayed, and older than that.
		"of those that are replayed": func(t *testing.T, st semel.Store, e *semel.Engine, random *rand.Rand) (want []string) {
			for i := range seconds * each {
				id := complete(t, e, fmt.Sprint(i), message(fmt.Sprint(i), "lane"))
				_, err := e.Internal().SettleMessage(t.Context(), id, state(t, st, id).ID, store.MessageFinding{State: store.MessageParked})
				must(t, err)
				pass(time.Millisecond)
			}
			pass(time.Second - time.Duration(time.Now().Nanosecond()))
			replayed := random.Perm(seconds * each)
			for of := range slices.Chunk(replayed, each) {
				for _, i := range of {
					id := semel.ID{Tenant: "t", Operation: "op", Key: fmt.Sprint(i)}
					_, err := Replay(t.Context(), e.Internal(), id, state(t, st, id).ID, "the receiver is back")
					must(t, err)
				}
				for _, i := range slices.Sorted(slices.Values(of)) {
					want = append(want, fmt.Sprint(i))
				}
				pass(time.Second)
			}
			return want
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				synctest.Test(t, func(t *testing.T) {
					st, r := &index{Store: memstore.New()}, &receiver{}
					e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op"}}})
					must(t, err)
					random := rand.New(rand.NewPCG(seed, 0))
					want := arrange(t, st, e, random)
					st.change.Store(new(changeFunc(func(recs []semel.Record) []semel.Record {
						random.Shuffle(len(recs), func(i, j int) { recs[i], recs[j] = recs[j], recs[i] })
						slices.SortStableFunc(recs, func(a, b semel.Record) int { return int(second(a.NextAt) - second(b.NextAt)) })
						return recs
					})))
					n := start(t, st, "n", Options{Destinations: map[string]Destination{"hook": {Sender: r}}}, func(d *Dispatcher) { d.limit = 10 })
					pass(time.Minute)
					if _, taken := r.seen(); !slices.Equal(taken, want) {
						t.Errorf("seed %d: %q, want %q", seed, taken, want)
					}
					n.halt()
					must(t, e.Close(t.Context()))
				})
			}
		})
	}
}

// backlogged runs a test with a dispatcher on a store that is full of expired records,
// which nobody purges, a caller that has no dispatcher, and the engine of the one that has.
func backlogged(t *testing.T, expired int, body func(t *testing.T, st *index, r *receiver, caller, own *semel.Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st, r := &index{Store: memstore.New()}, &receiver{}
		caller, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op"}, {Name: "old", Window: time.Hour}}})
		must(t, err)
		for i := range expired {
			a, err := caller.Begin(t.Context(), semel.Call{Tenant: "t", Operation: "old", Key: fmt.Sprint(i)})
			must(t, err)
			must(t, a.Attempt.Complete(t.Context(), semel.Result{}))
		}
		pass(time.Hour)
		n := start(t, st, "n", Options{Destinations: map[string]Destination{"hook": {Sender: r, Lease: 30 * time.Second}}})
		body(t, st, r, caller, n.engine)
		n.halt()
		must(t, caller.Close(t.Context()))
	})
}

// What is due for others is read once a minute, and not in each scan.
func TestADispatcherDoesNotReadABacklogAgainAndAgain(t *testing.T) {
	const expired, minutes = 10_000, 10
	backlogged(t, expired, func(t *testing.T, st *index, r *receiver, caller, _ *semel.Engine) {
		pass(time.Minute)
		st.read.Store(0)
		for i := range minutes {
			complete(t, caller, fmt.Sprint(i), message(fmt.Sprint(i), ""))
			pass(5 * time.Second)
			if _, taken := r.seen(); len(taken) != i+1 {
				t.Errorf("%d messages are delivered, want %d", len(taken), i+1)
			}
			pass(55 * time.Second)
		}
		if n := st.read.Load(); n > expired*(minutes+1)+minutes*60*scanLimit/64 {
			t.Errorf("%d records are read in %d minutes", n, minutes)
		}
	})
}

// A message can come behind the place where scans begin. Others that come after it don't
// overtake it in its lane, and without them it waits for a minute at most.
func TestAMessageThatComesBehindABacklog(t *testing.T) {
	// behind has a message come, and be seen only when the dispatcher has scanned beyond
	// it. Those that are never seen are known only to the engine that has completed them.
	behind := func(t *testing.T, st *index, caller *semel.Engine, m semel.Message, hidden time.Duration, never string) {
		start := time.Now()
		st.change.Store(new(changeFunc(func(recs []semel.Record) []semel.Record {
			return slices.DeleteFunc(recs, func(rec semel.Record) bool {
				return rec.ID.Key == never || rec.ID.Key == m.Name && time.Since(start) < hidden
			})
		})))
		complete(t, caller, m.Name, m)
		forOthers(t, caller, m.Name)
		pass(hidden)
	}
	for name, never := range map[string]string{"the other is found": "", "the other is told of": "younger"} {
		t.Run("in a lane; "+name, func(t *testing.T) {
			backlogged(t, 100, func(t *testing.T, st *index, r *receiver, caller, own *semel.Engine) {
				behind(t, st, caller, message("older", "lane"), 80*time.Second, never)
				if never != "" {
					caller = own
				}
				complete(t, caller, "younger", message("younger", "lane"))
				pass(5 * time.Second)
				if _, taken := r.seen(); !slices.Equal(taken, []string{"older", "younger"}) {
					t.Errorf("delivered %q", taken)
				}
			})
		})
	}
	for _, c := range []struct{ hidden, within time.Duration }{
		{80 * time.Second, wholeEvery + 5*time.Second},
		{5 * time.Second, 3 * time.Second}, // as long as a write can take
	} {
		t.Run(fmt.Sprintf("in none; written %v late", c.hidden), func(t *testing.T) {
			backlogged(t, 100, func(t *testing.T, st *index, r *receiver, caller, _ *semel.Engine) {
				behind(t, st, caller, message("late", ""), c.hidden, "")
				pass(c.within)
				if _, taken := r.seen(); !slices.Equal(taken, []string{"late"}) {
					t.Errorf("delivered %q", taken)
				}
			})
		})
	}
}

// forOthers completes calls whose messages are for destinations that nobody here has.
func forOthers(t *testing.T, e *semel.Engine, prefix string) {
	t.Helper()
	for i := range 200 {
		m := message(fmt.Sprint(i), "")
		m.Destination = "of others"
		complete(t, e, fmt.Sprint(prefix, i), m)
	}
}

// A message that another dispatcher was delivering when it died is found when that one's
// lease is over, whatever is due beside it.
func TestScansStopAtAMessageThatStaysDue(t *testing.T) {
	backlogged(t, 100, func(t *testing.T, st *index, r *receiver, caller, own *semel.Engine) {
		claimed := make(chan struct{})
		st.change.Store(new(changeFunc(func(recs []semel.Record) []semel.Record {
			<-claimed // nobody sees the message before the other has it
			return recs
		})))
		id := complete(t, caller, "k", message("k", ""))
		forOthers(t, caller, "k")
		claim, err := own.Begin(t.Context(), semel.Call{Tenant: "t", Principal: deliverer, Operation: operation("hook"), Key: state(t, st, id).ID})
		must(t, err)
		claim.Attempt.Detach()
		close(claimed)
		pass(25 * time.Second)
		if tries, _ := r.seen(); len(tries) != 0 {
			t.Fatalf("sent %q beside the other", tries)
		}
		pass(10 * time.Second)
		if _, taken := r.seen(); !slices.Equal(taken, []string{"k"}) {
			t.Errorf("delivered %q", taken)
		}
	})
}
