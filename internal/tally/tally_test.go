package tally

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/behind"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// node is a process on a store.
type node struct {
	*semel.Engine
	tally *Tally
	stop  func()
}

func start(t *testing.T, st semel.Store) *node {
	t.Helper()
	n := &node{tally: New(st)}
	var err error
	n.Engine, err = semel.New(st, &semel.Options{
		Operations: []semel.Operation{{Name: "pay", Window: time.Hour}},
		Events:     &semel.Events{Decided: func(ev semel.Decided) { n.tally.Count(ev.ID, ev.Decision) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { n.tally.Run(ctx) })
	n.stop = func() { cancel(); work.Wait() }
	return n
}

// deliver executes the call, or gets its answer.
func (n *node) deliver(t *testing.T, key string) *semel.Record {
	t.Helper()
	ans, err := n.Do(t.Context(), semel.Call{Tenant: "acme", Principal: "p", Operation: "pay", Key: key}, func(context.Context, semel.Execution) (semel.Result, error) {
		return semel.Result{Data: []byte("paid")}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ans.Record
}

func (n *node) counts(t *testing.T, rec *semel.Record, want Counts) {
	t.Helper()
	if got, err := n.tally.Of(t.Context(), rec); err != nil || !maps.Equal(got, want) {
		t.Errorf("counted %v, %v, want %v", got, err, want)
	}
}

// writes counts the writes of a store, and fails them.
type writes struct {
	*memstore.Store
	mu   sync.Mutex
	n    int
	fail bool
}

func (w *writes) Apply(ctx context.Context, wr store.Write) (*semel.Record, bool, error) {
	w.mu.Lock()
	w.n++
	fail := w.fail
	w.mu.Unlock()
	if fail {
		return nil, false, errors.New("the store is away")
	}
	return w.Store.Apply(ctx, wr)
}

func (w *writes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

func TestCountsSurviveARestartAndAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		a, b := start(t, st), start(t, st)
		rec := a.deliver(t, "k")
		for range 3 {
			a.deliver(t, "k")
			b.deliver(t, "k")
		}
		a.counts(t, rec, Counts{"execute": 1, "replay": 3}) // b's are on their way
		pass(behind.Pause)
		a.counts(t, rec, Counts{"execute": 1, "replay": 6})
		a.deliver(t, "k")
		a.stop() // writes what is left
		b.stop()
		c := start(t, st)
		defer c.stop()
		c.counts(t, rec, Counts{"execute": 1, "replay": 7})
		c.deliver(t, "k")
		c.counts(t, rec, Counts{"execute": 1, "replay": 8})
		c.counts(t, c.deliver(t, "other"), Counts{"execute": 1})
	})
}

// pass lets virtual time pass, and what is due be done.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestNoDeliveryWaitsForItsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &writes{Store: memstore.New()}
		n := start(t, st)
		defer n.stop()
		n.deliver(t, "k")
		before, began := st.count(), time.Now()
		for range 100 {
			n.deliver(t, "k")
		}
		if wrote := st.count() - before; wrote != 0 || time.Since(began) != 0 {
			t.Errorf("100 replays made %d writes and took %v", wrote, time.Since(began))
		}
		pass(behind.Pause)
		if wrote := st.count() - before; wrote != 1 {
			t.Errorf("their counts took %d writes", wrote)
		}
		pass(10 * behind.Pause)
		if wrote := st.count() - before; wrote != 1 {
			t.Errorf("afterwards there were %d writes", wrote-1)
		}
	})
}

func TestCountsAreOfOneRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		n := start(t, st)
		defer n.stop()
		n.deliver(t, "k")
		n.deliver(t, "k")
		pass(behind.Pause)
		st.Advance(2 * time.Hour) // the key is free again
		n.counts(t, n.deliver(t, "k"), Counts{"execute": 1})
	})
}

func TestAFailingStoreLosesCountsAndInventsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &writes{Store: memstore.New()}
		n := start(t, st)
		defer n.stop()
		rec := n.deliver(t, "k")
		n.tally.Count(rec.ID, semel.Replay)
		st.mu.Lock()
		st.fail = true
		st.mu.Unlock()
		pass(behind.Pause)
		st.mu.Lock()
		st.fail = false
		st.mu.Unlock()
		n.tally.Count(rec.ID, semel.Replay)
		pass(behind.Pause)
		n.counts(t, rec, Counts{"execute": 1, "replay": 1})
		for i := range 2 * maxFresh {
			n.tally.Count(semel.ID{Operation: "pay", Key: strconv.Itoa(i)}, semel.Replay)
		}
		if fresh, _ := n.tally.State(); fresh != maxFresh {
			t.Errorf("%d records are counted at once", fresh)
		}
	})
}

// during is a store in which something happens while a cell is read or after it was written,
// once.
type during struct {
	*memstore.Store
	read, written func()
}

func (d *during) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	if f := d.read; f != nil && id.Operation == store.CountsOf(id).Operation {
		d.read = nil
		f()
	}
	return d.Store.Get(ctx, id)
}

func (d *during) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	rec, applied, err := d.Store.Apply(ctx, w)
	if f := d.written; f != nil && w.Record.ID.Operation == store.CountsOf(w.Record.ID).Operation {
		d.written = nil
		f()
	}
	return rec, applied, err
}

// Whoever asks for counts while they are written may miss them for a moment, and never gets them
// twice.
func TestCountsAreNeverTooHighWhileTheyAreWritten(t *testing.T) {
	for name, race := range map[string]func(t *testing.T, st *during, y *Tally, of func()){
		"written while they are read": func(t *testing.T, st *during, y *Tally, of func()) {
			st.read = func() { y.Flush(t.Context()) }
			of()
		},
		"read before the write is known to be done": func(t *testing.T, st *during, y *Tally, of func()) {
			st.written = of
			y.Flush(t.Context())
		},
		"read when they have been written": func(t *testing.T, st *during, y *Tally, of func()) {
			y.Flush(t.Context())
			of()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &during{Store: memstore.New()}
				n := start(t, st)
				rec := n.deliver(t, "k")
				n.stop()
				y := New(st)
				y.Count(rec.ID, semel.Replay)
				asked := false
				race(t, st, y, func() {
					asked = true
					got, err := y.Of(t.Context(), rec)
					if err != nil || got[semel.Replay] > 1 {
						t.Errorf("one duplicate counts as %v, %v", got, err)
					}
				})
				if !asked {
					t.Fatal("nobody has asked")
				}
				n.tally = y
				n.counts(t, rec, Counts{"execute": 1, "replay": 1}) // in the end
			})
		})
	}
}

// What nobody pays for has no cell beside it.
func TestSomeRecordsHaveNoCounts(t *testing.T) {
	n := start(t, memstore.New())
	defer n.stop()
	n.tally.Uncounted = func(rec *semel.Record) bool { return rec.ID.Key == "stranger" }
	for _, key := range []string{"stranger", "owner"} {
		n.deliver(t, key)
		n.deliver(t, key)
	}
	n.tally.Flush(t.Context())
	for key, want := range map[string]bool{"stranger": false, "owner": true} {
		value, err := store.NewCell(n.Internal().Store(), store.CountsOf(n.deliver(t, key).ID)).Load(t.Context())
		if err != nil || (value.Data != nil) != want {
			t.Errorf("%s: %s, %v", key, value.Data, err)
		}
	}
}
