package enginetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// shelf is an archive in memory.
type shelf struct {
	batches [][]semel.Record
	fails   error
}

func (s *shelf) write(_ context.Context, recs []semel.Record) error {
	if s.fails != nil {
		return s.fails
	}
	s.batches = append(s.batches, recs)
	return nil
}

// archiving is a rig whose operation "op" is archived, and "free" is not.
func archiving(t *testing.T, events *semel.Events, body func(t *testing.T, r *rig, s *shelf)) {
	t.Helper()
	s := &shelf{}
	opts := semel.Options{Archive: s.write, Events: events, Operations: []semel.Operation{{Name: "free", Window: time.Hour}}}
	inBubbleWith(t, opts, semel.Operation{OnExpiry: semel.ArchiveExpired, Window: time.Hour}, func(t *testing.T, r *rig) { body(t, r, s) })
}

// done completes a call and returns what is stored of it.
func done(t *testing.T, r *rig, c semel.Call) semel.Record {
	t.Helper()
	a := begin(t, r.Engine, c)
	must(t, a.Complete(t.Context(), data("result of "+c.Key)))
	return *a.Record()
}

// same compares records by what they say.
func same(t *testing.T, got, want semel.Record) {
	t.Helper()
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if f := g.Type().Field(i); f.IsExported() && !reflect.DeepEqual(g.Field(i).Interface(), w.Field(i).Interface()) {
			t.Errorf("%s is %v, want %v", f.Name, g.Field(i), w.Field(i))
		}
	}
}

func sweep(t *testing.T, r *rig, want semel.Swept) {
	t.Helper()
	if n, err := r.Sweep(t.Context()); n != want || err != nil {
		t.Fatalf("the sweep gives %+v, %v; want %+v", n, err, want)
	}
	synctest.Wait() // for reconcilers, which are asked beside it
}

func TestArchiveBeforePurge(t *testing.T) {
	free := call("free")
	free.Operation = "free"
	t.Run("records of an archived operation are handed over whole, and then deleted; others are only deleted", func(t *testing.T) {
		clause.Proves(t, "MAP-EXP.3")
		archiving(t, nil, func(t *testing.T, r *rig, s *shelf) {
			want := done(t, r, call("k"))
			done(t, r, free)
			running := begin(t, r.Engine, call("running"))
			pass(time.Hour)
			sweep(t, r, semel.Swept{Due: 2, Purged: 2})
			if len(s.batches) != 1 || len(s.batches[0]) != 1 {
				t.Fatalf("the archive got %+v", s.batches)
			}
			same(t, s.batches[0][0], want)
			if r.store.Len() != 1 {
				t.Errorf("%d records are stored, want the running one", r.store.Len())
			}
			must(t, running.Complete(t.Context(), data("done")))
		})
	})
	t.Run("an archive that fails keeps its records, and only those, until it works", func(t *testing.T) {
		archiving(t, nil, func(t *testing.T, r *rig, s *shelf) {
			done(t, r, call("k"))
			done(t, r, free)
			s.fails = errors.New("disk full")
			pass(time.Hour)
			n, err := r.Sweep(t.Context())
			if n.Purged != 1 || n.Unarchived != 1 || !errors.Is(err, s.fails) {
				t.Fatalf("%+v, %v", n, err)
			}
			if _, err := r.store.Get(t.Context(), id("k")); err != nil {
				t.Fatalf("the record that was not archived: %v", err)
			}
			// It counts as absent for deliveries all the same.
			_, err = r.Lookup(t.Context(), id("k"))
			wantCode(t, err, semel.CodeNotFound)
			s.fails = nil
			sweep(t, r, semel.Swept{Due: 1, Purged: 1})
			if len(s.batches) != 1 || r.store.Len() != 0 {
				t.Errorf("%d batches are archived, %d records stored", len(s.batches), r.store.Len())
			}
		})
	})
	t.Run("without an archive the records stay, and the sweep says so", func(t *testing.T) {
		opts := semel.Options{Operations: []semel.Operation{{Name: "free", Window: time.Hour}}}
		inBubbleWith(t, opts, semel.Operation{OnExpiry: semel.ArchiveExpired, Window: time.Hour}, func(t *testing.T, r *rig) {
			done(t, r, call("k"))
			done(t, r, free)
			pass(time.Hour)
			n, err := r.Sweep(t.Context())
			wantCode(t, err, semel.CodeUnsupported)
			if n.Purged != 1 || n.Unarchived != 1 || r.store.Len() != 1 {
				t.Errorf("%+v; %d records are stored", n, r.store.Len())
			}
		})
	})
	for _, form := range []faultstore.Form{faultstore.NotApplied, faultstore.Applied} {
		t.Run("after a crash between archive and purge nothing is lost: the purge is "+string(form), func(t *testing.T) {
			archiving(t, nil, func(t *testing.T, r *rig, s *shelf) {
				want := done(t, r, call("k"))
				pass(time.Hour)
				r.faults.Next(faultstore.Purge, form, 1)
				if n, err := r.Sweep(t.Context()); n.Purged != 0 || !errors.Is(err, faultstore.ErrInjected) {
					t.Fatalf("%+v, %v", n, err)
				}
				again := 0
				if form == faultstore.NotApplied {
					again = 1
				}
				sweep(t, r, semel.Swept{Due: again, Purged: again})
				if len(s.batches) != 1+again || r.store.Len() != 0 {
					t.Fatalf("it was archived %d times, and %d records are stored", len(s.batches), r.store.Len())
				}
				for _, batch := range s.batches {
					same(t, batch[0], want) // so ID and Revision are the same
				}
			})
		})
	}
}

func TestPurgeRate(t *testing.T) {
	const records, rate = 1000, 100
	for _, perSecond := range []int{0, rate} {
		t.Run(fmt.Sprintf("of %d expired records at a rate of %d", records, perSecond), func(t *testing.T) {
			purged := 0
			var began time.Time
			events := &semel.Events{Purged: func(ev semel.Purged) {
				// The first batch comes at once, and each later one when there is
				// room for what was purged before it.
				if allowed := float64(perSecond) * time.Since(began).Seconds(); perSecond > 0 && float64(purged) > allowed {
					t.Errorf("%d records were purged after %v, and more followed", purged, time.Since(began))
				}
				purged += ev.Count
			}}
			opts := semel.Options{Events: events, PurgeRate: perSecond}
			inBubbleWith(t, opts, semel.Operation{Window: time.Hour}, func(t *testing.T, r *rig) {
				for i := range records {
					done(t, r, call(fmt.Sprint(i)))
				}
				pass(time.Hour)
				ctx, stop := context.WithCancel(t.Context())
				ran := make(chan error)
				began = time.Now()
				go func() { ran <- r.Run(ctx, time.Second) }()
				pass(time.Second / 2)
				if perSecond == 0 && purged < 512 {
					t.Errorf("without a rate %d of %d records were purged in half a second", purged, records)
				}
				pass(12 * time.Second) // pauses are up to an eighth longer
				if purged != records {
					t.Errorf("%d of %d records were purged", purged, records)
				}
				stop()
				if err := <-ran; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		})
	}
	t.Run("it bounds batches that are not full too", func(t *testing.T) {
		inBubbleWith(t, semel.Options{PurgeRate: 10}, semel.Operation{Window: time.Hour}, func(t *testing.T, r *rig) {
			for i := range 100 {
				done(t, r, call(fmt.Sprint("first", i)))
			}
			pass(time.Second)
			for i := range 100 {
				done(t, r, call(fmt.Sprint("second", i)))
			}
			pass(time.Hour - time.Second)
			ctx, stop := context.WithCancel(t.Context())
			ran := make(chan error)
			go func() { ran <- r.Run(ctx, 100*time.Millisecond) }()
			pass(9 * time.Second)
			if left := r.store.Len(); left != 100 {
				t.Errorf("after 9 seconds %d of 200 records are left", left)
			}
			pass(5 * time.Second)
			if left := r.store.Len(); left != 0 {
				t.Errorf("after 14 seconds %d of 200 records are left", left)
			}
			stop()
			<-ran
		})
	})
}

func TestOperatorPurges(t *testing.T) {
	t.Run("only a record whose attempt has ended can be purged", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			a := begin(t, r.Engine, call("k"))
			wantCode(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: "test"}), semel.CodeIllegalTransition)
			must(t, a.Hold(t.Context(), "who knows"))
			wantCode(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: "test"}), semel.CodeIllegalTransition)
			wantCode(t, r.Purge(t.Context(), id("none"), semel.Removal{Reason: "test"}), semel.CodeNotFound)
			must(t, attach(t, r.Engine, "k", a.Fence()).Complete(t.Context(), data("done")))
			must(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: "test"}))
			if r.store.Len() != 0 {
				t.Error("it is still there")
			}
			wantCode(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: "test"}), semel.CodeNotFound)
		})
	})
	t.Run("the reason is told, and the next delivery runs under a higher fence", func(t *testing.T) {
		clause.Proves(t, "MAP-EXP.2")
		var told []semel.Purged
		events := &semel.Events{Purged: func(ev semel.Purged) { told = append(told, ev) }}
		inBubbleWith(t, semel.Options{Events: events}, semel.Operation{}, func(t *testing.T, r *rig) {
			rec := done(t, r, call("k"))
			// The next fence will come from the clock, as a node reads it that may be a
			// second behind.
			began := time.Now()
			must(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: "ticket 7"}))
			if want := (semel.Purged{Count: 1, ID: id("k"), By: "operator", Reason: "ticket 7"}); len(told) != 1 || !reflect.DeepEqual(told[0], want) {
				t.Errorf("told %+v, want %+v", told, want)
			}
			if took := time.Since(began); took <= time.Second || took > 2*time.Second {
				t.Errorf("it took %v", took)
			}
			again := begin(t, r.Engine, call("k"))
			if again.Fence() <= rec.Fence || again.Number() != 1 {
				t.Errorf("attempt %d has fence %d after %d", again.Number(), again.Fence(), rec.Fence)
			}
			must(t, again.Complete(t.Context(), data("again")))
		})
	})
	t.Run("with a fence only the record of that attempt is purged", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			first := done(t, r, call("k"))
			must(t, r.Purge(t.Context(), id("k"), semel.Removal{Fence: first.Fence}))
			wantCode(t, r.Purge(t.Context(), id("k"), semel.Removal{Fence: first.Fence}), semel.CodeNotFound)
			second := done(t, r, call("k"))
			later(t, r.Purge(t.Context(), id("k"), semel.Removal{Fence: first.Fence}))
			decides(t, r.Engine, call("k"), semel.Replay)
			must(t, r.Purge(t.Context(), id("k"), semel.Removal{Fence: second.Fence}))
			if r.store.Len() != 0 {
				t.Error("it is still there")
			}
		})
	})
	t.Run("it is archived first, and kept if that fails", func(t *testing.T) {
		archiving(t, nil, func(t *testing.T, r *rig, s *shelf) {
			want := done(t, r, call("k"))
			s.fails = errors.New("disk full")
			if err := r.Purge(t.Context(), id("k"), semel.Removal{Reason: "test"}); !errors.Is(err, s.fails) || r.store.Len() != 1 {
				t.Fatalf("%v; %d records are stored", err, r.store.Len())
			}
			s.fails = nil
			must(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: "test"}))
			if len(s.batches) != 1 || r.store.Len() != 0 {
				t.Fatalf("it was archived %d times, and %d records are stored", len(s.batches), r.store.Len())
			}
			same(t, s.batches[0][0], want)
		})
	})
	t.Run("without an archive a record that is to be archived can't be purged", func(t *testing.T) {
		inBubble(t, semel.Operation{OnExpiry: semel.ArchiveExpired}, func(t *testing.T, r *rig) {
			done(t, r, call("k"))
			wantCode(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: "test"}), semel.CodeUnsupported)
			decides(t, r.Engine, call("k"), semel.Replay)
		})
	})
	t.Run("a store that does not answer says so", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			done(t, r, call("k"))
			for _, verb := range []faultstore.Verb{faultstore.Get, faultstore.Now, faultstore.Purge} {
				r.faults.Next(verb, faultstore.NotApplied, 1)
				wantCode(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: "test"}), semel.CodeStoreUnavailable)
			}
			decides(t, r.Engine, call("k"), semel.Replay)
		})
	})
}
