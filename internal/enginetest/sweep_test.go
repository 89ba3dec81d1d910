package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// A sweep that takes long writes what is true when it writes: what it ends in the past
// may have expired already, and with it the ledger.
func TestASweepThatTakesLongEndsNothingInThePast(t *testing.T) {
	op := semel.Operation{Lease: 3 * time.Second, Window: time.Minute, Effects: []string{"charge"}}
	stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
		for i := range 3 {
			begin(t, e, call(fmt.Sprint("k", i))).Detach()
		}
		pass(10 * time.Second)
		const took = 2 * time.Minute
		st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
			cur, applied, err := st.mem.Apply(ctx, w)
			<-time.After(took)
			if now, _ := st.Now(ctx); now.Sub(w.Record.EndedAt) != took {
				t.Errorf("%v after it was written an attempt is said to have ended %v ago", took, now.Sub(w.Record.EndedAt))
			}
			return cur, applied, err
		})
		if n, err := e.Sweep(t.Context()); n.Abandoned != 3 || err != nil {
			t.Errorf("swept %+v, %v", n, err)
		}
	})
}

// A reconciler that hangs, or many, keep nothing else from being attended to.
func TestAReconcilerThatHangsStopsNothing(t *testing.T) {
	programs(t, func(t *testing.T, st *memstore.Store) {
		var asked atomic.Int64
		failed := make(chan semel.Reconciled, 64)
		hang := make(chan struct{})
		hangs := semel.Operation{Name: "op", Lease: 3 * time.Second, Reconcile: func(context.Context, semel.Record) (semel.Settlement, error) {
			asked.Add(1)
			<-hang // it does not even look at its context
			return semel.Settlement{Outcome: semel.DispositionCompleted, Result: data("too late")}, nil
		}}
		well := semel.Operation{Name: "well", Lease: 3 * time.Second, Reconcile: func(ctx context.Context, _ semel.Record) (semel.Settlement, error) {
			if _, limited := ctx.Deadline(); !limited {
				t.Error("the question has no limit")
			}
			return semel.Settlement{Outcome: semel.DispositionCompleted, Result: data("found")}, nil
		}}
		events := &semel.Events{Reconciled: func(ev semel.Reconciled) {
			if ev.Err != nil {
				failed <- ev
			}
		}}
		e := program(t, st, semel.Options{Events: events}, hangs, well, semel.Operation{Name: "free", Lease: 3 * time.Second, OnAbandoned: semel.RetryAbandoned})
		for i := range 40 {
			must(t, begin(t, e, call(fmt.Sprint("k", i))).Hold(t.Context(), "who knows"))
		}
		pass(time.Second)
		swept := func() (n semel.Swept, err error) {
			n, err = e.Sweep(t.Context())
			pass(time.Second)
			return n, err
		}
		n, err := swept()
		if n.Reconciled != 16 || n.Waiting != 24 || err != nil {
			t.Errorf("swept %+v, %v", n, err)
		}
		for _, op := range []string{"well", "free"} {
			c := call("k")
			c.Operation = op
			begin(t, e, c).Detach()
		}
		pass(time.Minute)
		_, _ = swept() // holds the one and abandons the other
		_, _ = swept() // asks about the one
		for op, want := range map[string]store.Disposition{"well": semel.DispositionCompleted, "free": semel.DispositionAbandoned} {
			rec, err := e.Lookup(t.Context(), semel.ID{Tenant: "t", Principal: "p", Operation: op, Key: "k"})
			if must(t, err); rec.Disposition != want {
				t.Errorf("%s is %s, held: %q", op, rec.State, rec.HeldReason)
			}
		}
		close(hang)
		pass(time.Second)
		if len(failed) != 16 {
			t.Errorf("told %d times", len(failed))
		} else if ev := <-failed; !strings.Contains(ev.Err.Error(), "more than 30s") {
			t.Errorf("told %+v", ev)
		}
		for i := range 40 { // what came too late was not heard
			decides(t, e, call(fmt.Sprint("k", i)), semel.Held)
		}
		pass(time.Minute)
		if n, err := swept(); n.Reconciled < 16 { // more, where the first have answered already
			t.Errorf("when they have ended further questions are put: %+v, %v", n, err)
		}
	})
}

// That more is held than a slow provider answers at a time is a queue and no failure: sweeps
// succeed, and say how much waits, until all of it is settled.
func TestAQueueForAReconcilerIsNoFailure(t *testing.T) {
	programs(t, func(t *testing.T, st *memstore.Store) {
		const held, each = 100, 10 * time.Second
		var waiting atomic.Int64
		events := &semel.Events{Swept: func(ev semel.SweepEnded) {
			if waiting.Store(int64(ev.Swept.Waiting)); ev.Err != nil {
				t.Errorf("a sweep fails: %v", ev.Err)
			}
		}}
		e := program(t, st, semel.Options{Events: events}, semel.Operation{Name: "op", Reconcile: func(context.Context, semel.Record) (semel.Settlement, error) {
			<-time.After(each)
			return semel.Settlement{Outcome: semel.DispositionCompleted}, nil
		}})
		for i := range held {
			must(t, begin(t, e, call(fmt.Sprint("k", i))).Hold(t.Context(), "lost"))
		}
		running(t, e, func() {
			pass(each / 2)
			if n := waiting.Load(); n != held-16 {
				t.Errorf("%d wait, want %d", n, held-16)
			}
			pass(each * (held/16 + 2))
			if n := waiting.Load(); n != 0 {
				t.Errorf("in the end %d wait", n)
			}
			for i := range held {
				decides(t, e, call(fmt.Sprint("k", i)), semel.Replay)
			}
		})
	})
}

// An archive that is down keeps what it has to take from being purged, and nothing else.
func TestAnArchiveThatIsDownHidesNothing(t *testing.T) {
	const waiting = 3000
	for _, name := range []string{"it fails", "it never answers", "there is none"} {
		t.Run(name, func(t *testing.T) {
			programs(t, func(t *testing.T, st *memstore.Store) {
				stop := make(chan struct{})
				opts := semel.Options{}
				switch name {
				case "it fails":
					opts.Archive = func(context.Context, []semel.Record) error { return errors.New("no space left") }
				case "it never answers":
					opts.Archive = func(context.Context, []semel.Record) error { <-stop; return errors.New("stopped") }
				}
				e := program(t, st, opts, semel.Operation{Name: "kept", Window: time.Minute, OnExpiry: semel.ArchiveExpired},
					semel.Operation{Name: "op", Lease: 3 * time.Second, OnAbandoned: semel.RetryAbandoned})
				for i := range waiting {
					c := call(fmt.Sprint("k", i))
					c.Operation = "kept"
					must(t, begin(t, e, c).Complete(t.Context(), data("x")))
				}
				begin(t, e, call("k")).Detach()
				pass(time.Hour)
				begin(t, e, call("later")).Detach()
				pass(time.Minute)
				abandoned := 0
				for range 4 {
					n, err := e.Sweep(t.Context())
					if abandoned += n.Abandoned; err == nil || n.Purged > 0 {
						t.Errorf("swept %+v, %v", n, err)
					}
				}
				if abandoned != 2 || st.Len() != waiting+2 {
					t.Errorf("%d attempts were found abandoned; %d records are stored", abandoned, st.Len())
				}
				close(stop)
				pass(time.Second)
			})
		})
	}
}

// A record that can't be read keeps no other from being attended to, and is told of.
func TestUnreadableRecordsHideNothing(t *testing.T) {
	bad := errors.New("the stored record has a format that is newer than this program")
	op := semel.Operation{Lease: 3 * time.Second, OnAbandoned: semel.RetryAbandoned}
	stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
		begin(t, e, call("k")).Detach()
		pass(time.Minute)
		st.DueIndex = unreadable{st.mem, bad}
		n, err := e.Sweep(t.Context())
		if n.Unreadable != 1 || n.Abandoned != 1 || !errors.Is(err, bad) {
			t.Errorf("swept %+v, %v", n, err)
		}
	})
}

type unreadable struct {
	store.DueIndex
	err error
}

func (u unreadable) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	page, err := u.DueIndex.Due(ctx, q)
	page.Unreadable = append(page.Unreadable, u.err)
	return page, err
}

// What an engine can do nothing about hides nothing that comes after it.
func TestWhatIsLeftToOthersHidesNothing(t *testing.T) {
	programs(t, func(t *testing.T, st *memstore.Store) {
		const others = 5000
		theirs := program(t, st, semel.Options{}, semel.Operation{Name: "theirs", Lease: time.Second})
		e := program(t, st, semel.Options{}, semel.Operation{Name: "op", Lease: 3 * time.Second, OnAbandoned: semel.RetryAbandoned})
		for i := range others {
			c := call(fmt.Sprint("k", i))
			c.Operation = "theirs"
			begin(t, theirs, c).Detach()
		}
		pass(time.Second)
		begin(t, e, call("k")).Detach()
		pass(time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx, time.Second) }()
		pass(5 * time.Second)
		stop()
		<-done
		rec, err := e.Lookup(t.Context(), id("k"))
		if must(t, err); rec.Disposition != semel.DispositionAbandoned {
			t.Errorf("it is %s", rec.State)
		}
	})
}

// Run tells of each of its sweeps.
func TestRunTellsOfItsSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sweeps := 0
		e := program(t, memstore.New(), semel.Options{Events: &semel.Events{Swept: func(semel.SweepEnded) { sweeps++ }}}, semel.Operation{Name: "op"})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := e.Run(ctx, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if sweeps < 8 || sweeps > 11 {
			t.Errorf("told of %d sweeps in 10 s", sweeps)
		}
	})
}
