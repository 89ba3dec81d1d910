package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// reader counts the due records that are read.
type reader struct {
	semel.Store
	store.DueIndex
	store.Purger
	read atomic.Int64
}

func newReader(st *memstore.Store) *reader { return &reader{Store: st, DueIndex: st, Purger: st} }

func (r *reader) Extras() store.Extras { return store.Extras{Due: r, Purge: r} }

func (r *reader) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	page, err := r.DueIndex.Due(ctx, q)
	r.read.Add(int64(len(page.Records)))
	return page, err
}

// running lets an engine run until the test ends.
func running(t *testing.T, e *semel.Engine, body func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	defer stop()
	go func() { ran <- e.Run(ctx, 0) }()
	body()
	stop()
	if err := <-ran; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The pause between two purges slows down nothing but purging, and what can't be purged
// isn't read again and again.
func TestThePurgeIntervalPacesPurgingOnly(t *testing.T) {
	clause.Proves(t, "MAP-EXP.2")
	const backlog, interval = 5000, 10 * time.Minute
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprintf("the archive is down: %v", down), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := memstore.New()
				r := newReader(st)
				archive := func(context.Context, []semel.Record) error {
					if down {
						return errors.New("the archive is down")
					}
					return nil
				}
				found := semel.Operation{Name: "op", Lease: 3 * time.Second, Reconcile: func(context.Context, semel.Record) (semel.Settlement, error) {
					return semel.Settlement{Outcome: semel.DispositionCompleted, Result: data("found")}, nil
				}}
				e := program(t, r, semel.Options{PurgeInterval: interval, Archive: archive}, found, semel.Operation{Name: "old", Window: time.Hour, OnExpiry: semel.ArchiveExpired})
				old := func(i int) {
					c := call(fmt.Sprint("k", i))
					c.Operation = "old"
					must(t, begin(t, e, c).Complete(t.Context(), data("x")))
				}
				for i := range backlog {
					old(i)
				}
				running(t, e, func() {
					pass(time.Hour - time.Minute) // the backlog isn't due yet
					due, before := st.Len(), int64(0)
					for i := range 20 {
						if i == 15 {
							before = r.read.Load()
						}
						begin(t, e, call(fmt.Sprint(i))).Detach()
						pass(3*time.Second + 2500*time.Millisecond)
						if ans := decides(t, e, call(fmt.Sprint(i)), semel.Replay); string(ans.Record.Result.Data) != "found" {
							t.Fatalf("call %d: %+v", i, ans.Record)
						}
					}
					if read := r.read.Load() - before; read > backlog+1000 { // a pass may have been among them
						t.Errorf("%d records were read for five", read)
					}
					pass(interval + time.Minute)
					if left := st.Len() - 20; down && left != due || !down && left != 0 {
						t.Errorf("%d of %d expired records are left", left, due)
					}
				})
			})
		})
	}
}

// What is written late, behind the place from which sweeps look ahead, is found by the
// next pass; and what was left alone is found when its operation is registered.
func TestLookingAheadMissesNothingForLong(t *testing.T) {
	programs(t, func(t *testing.T, st *memstore.Store) {
		e := program(t, newReader(st), semel.Options{PurgeInterval: time.Hour}, semel.Operation{Name: "op", Lease: 3 * time.Second, Window: 10 * time.Minute})
		other := program(t, st, semel.Options{}, semel.Operation{Name: "op", Lease: 3 * time.Second}, semel.Operation{Name: "new", Lease: 3 * time.Second})
		running(t, e, func() {
			for i := range 100 {
				must(t, begin(t, e, call(fmt.Sprint("old", i))).Complete(t.Context(), data("x")))
				c := call(fmt.Sprint("new", i))
				c.Operation = "new"
				begin(t, other, c).Detach()
			}
			late := *begin(t, other, call("late")).Record()
			pass(20 * time.Minute)
			// Its claim arrives now.
			late.Revision[0]++
			late.ID.Key = "later"
			_, _, err := st.Apply(t.Context(), store.Write{Record: new(late)})
			must(t, err)
			pass(time.Minute + 2*time.Second)
			if rec, err := e.Lookup(t.Context(), id("later")); err != nil || !rec.Held {
				t.Errorf("after a minute it is %s, %v", rec.State, err)
			}
			must(t, e.Register(semel.Operation{Name: "new", Lease: 3 * time.Second}))
			pass(2 * time.Second)
			rec, err := e.Lookup(t.Context(), semel.ID{Tenant: "t", Principal: "p", Operation: "new", Key: "new99"})
			if must(t, err); !rec.Held {
				t.Error("the records of a new operation are left alone")
			}
		})
	})
}

func TestPurgesAreAnIntervalApart(t *testing.T) {
	programs(t, func(t *testing.T, st *memstore.Store) {
		const interval = 10 * time.Minute
		var last time.Time
		purges := 0
		events := &semel.Events{Purged: func(semel.Purged) {
			if since := time.Since(last); since < interval {
				t.Errorf("purged again after %v", since)
			}
			last = time.Now()
			purges++
		}}
		e := program(t, st, semel.Options{PurgeInterval: interval, Events: events}, semel.Operation{Name: "op", Window: time.Minute})
		running(t, e, func() {
			for i := range 120 {
				must(t, begin(t, e, call(fmt.Sprint(i))).Complete(t.Context(), data("x")))
				pass(30 * time.Second)
			}
		})
		if purges < 5 {
			t.Errorf("purged %d times in an hour", purges)
		}
	})
}

// Sweeps that only look ahead come back to what had to wait, even if all that lies behind it can
// do nothing but be purged later.
func TestLookingAheadComesBackToWhatWaits(t *testing.T) {
	programs(t, func(t *testing.T, st *memstore.Store) {
		const held, old, places = 40, 200, 16
		e := program(t, st, semel.Options{PurgeInterval: time.Hour},
			semel.Operation{Name: "op", Reconcile: func(context.Context, semel.Record) (semel.Settlement, error) {
				<-time.After(time.Second)
				return semel.Settlement{Outcome: semel.DispositionCompleted}, nil
			}}, semel.Operation{Name: "old", Window: time.Minute})
		for i := range old {
			c := call(fmt.Sprint(i))
			c.Operation = "old"
			must(t, begin(t, e, c).Complete(t.Context(), data("x")))
		}
		pass(30 * time.Second)
		if n := swept(t, e); n != (semel.Swept{}) { // all of it is looked at again in a minute
			t.Fatalf("before, a sweep did %+v", n)
		}
		pass(20 * time.Second)
		for i := range held {
			must(t, begin(t, e, call(fmt.Sprint(i))).Hold(t.Context(), "lost"))
		}
		pass(15 * time.Second)
		for left := held; left > 0; left -= places {
			asks := min(left, places)
			if n := swept(t, e); !n.Partial || n.Reconciled != asks || n.Waiting != left-asks {
				t.Fatalf("while %d are held, a sweep did %+v", left, n)
			}
			pass(2 * time.Second)
		}
	})
}
