package figures_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/service/figures"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// node is a process on a store.
type node struct {
	*semel.Engine
	figures *figures.Figures
	stop    func()
}

func start(t *testing.T, st semel.Store) *node { return startWith(t, st, nil) }

func startWith(t *testing.T, st semel.Store, opts *figures.Options) *node {
	t.Helper()
	n := &node{figures: figures.New(st, opts)}
	events := n.figures.Events()
	events.Unswept = func(semel.Unswept) {}
	var err error
	n.Engine, err = semel.New(st, &semel.Options{
		Operations: []semel.Operation{{Name: "pay", Window: time.Hour, OnFailure: semel.RetryFailure}, {Name: "mail"}},
		Events:     events,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { n.figures.Run(ctx) })
	n.stop = func() { cancel(); work.Wait() }
	t.Cleanup(n.stop)
	return n
}

func (n *node) deliver(t *testing.T, operation, key string, fn func() error) {
	t.Helper()
	_, err := n.Do(t.Context(), semel.Call{Tenant: "acme", Principal: "p", Operation: operation, Key: key, Door: "http"},
		func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{Data: []byte("x")}, fn()
		})
	if err != nil && fn() == nil {
		t.Fatal(err)
	}
}

func works() error { return nil }

func (n *node) report(t *testing.T, d time.Duration) *figures.Report {
	t.Helper()
	r, err := n.figures.Read(t.Context(), d, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func keyOf(r figures.RecordCounts) string {
	id, _ := store.DecodeID(r.Record)
	return id.Key
}

// pass lets virtual time pass, for the store as well.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestDuplicateShareIsMeasured(t *testing.T) {
	clause.Proves(t, "MAP-MON.1")
	synctest.Test(t, func(t *testing.T) {
		n := start(t, memstore.New())
		for range 4 {
			n.deliver(t, "pay", "a", works)
		}
		n.deliver(t, "mail", "b", works)
		r := n.report(t, time.Hour)
		if got, want := r.Total, (figures.Sums{Deliveries: 5, Executed: 2, Stopped: 3, StoppedShare: 0.6}); got != want {
			t.Errorf("in sum %+v, want %+v", got, want)
		}
		if len(r.Operations) != 2 || r.Operations[0].Operation != "pay" || r.Operations[0].StoppedShare != 0.75 || r.Operations[1].StoppedShare != 0 {
			t.Errorf("operations %+v", r.Operations)
		}
		if got := fmt.Sprint(r.Series); got != "[{http mail execute 1} {http pay execute 1} {http pay replay 3}]" {
			t.Errorf("series %s", got)
		}
		if len(r.Repeated) != 1 || keyOf(r.Repeated[0]) != "a" || r.Repeated[0].Repeats != 3 || len(r.Crowded) != 0 || len(r.Failing) != 0 {
			t.Errorf("records %+v, %+v, %+v", r.Repeated, r.Crowded, r.Failing)
		}
		last := r.Points[len(r.Points)-1]
		if len(r.Points) != 60 || last.Sums != r.Total {
			t.Errorf("%d points, the last is %+v", len(r.Points), last)
		}
	})
}

// TestWhatWasStopped: a delivery is a stopped duplicate if it got an outcome. Polls, conflicts and
// refusals have counts of their own, and how often a client polls changes no share.
func TestWhatWasStopped(t *testing.T) {
	clause.Proves(t, "MAP-MON.1")
	f := figures.New(memstore.New(), nil)
	for decision, times := range map[semel.Decision]int{
		semel.Execute: 1, semel.Replay: 3, semel.InFlight: 40, semel.Conflict: 5,
		semel.Held: 1, semel.TooLate: 1, semel.Throttled: 1, semel.OtherCaller: 1, semel.OtherDoor: 1, semel.Superseded: 1, semel.SequenceGap: 1,
	} {
		for range times {
			f.Events().Decided(semel.Decided{ID: semel.ID{Operation: "pay", Key: "a"}, Door: "http", Decision: decision})
		}
	}
	r, err := f.Read(t.Context(), time.Hour, nil)
	if want := (figures.Sums{Deliveries: 56, Executed: 1, Stopped: 3, StoppedShare: 0.75, Polls: 40, Conflicts: 5, TurnedAway: 7, Simultaneous: 40}); err != nil || r.Total != want || r.Operations[0].Sums != want {
		t.Errorf("%v, %+v, want %+v", err, r.Total, want)
	}
}

// TestFromHowManyDeliveriesAKeyIsCrowded is a setting: two at once are enough, if you say so.
func TestFromHowManyDeliveriesAKeyIsCrowded(t *testing.T) {
	clause.Proves(t, "MAP-MON.6")
	for _, c := range []struct{ setting, from int }{{2, 2}, {3, 3}, {0, 11}} {
		synctest.Test(t, func(t *testing.T) {
			told := map[string]int{}
			n := startWith(t, memstore.New(), &figures.Options{Crowd: c.setting, Crowded: func(operation string) { told[operation]++ }})
			meet := func(key string, deliveries int) {
				n.deliver(t, "pay", key, func() error {
					for range deliveries - 1 { // beside the one that runs
						if ans, err := n.Begin(t.Context(), semel.Call{Tenant: "acme", Principal: "p", Operation: "pay", Key: key, Door: "http"}); err != nil || ans.Decision != semel.InFlight {
							t.Error(ans.Decision, err)
						}
					}
					return nil
				})
			}
			meet("a few", c.from-1)
			pass(time.Minute)
			meet("a few more", c.from-1)
			if len(told) != 0 || len(n.report(t, time.Hour).Crowded) != 0 {
				t.Errorf("%d at once are a crowd of %d: %v", c.from-1, c.from, told)
			}
			meet("crowd", c.from)
			if r := n.report(t, time.Hour); told["pay"] != 1 || len(r.Crowded) != 1 || keyOf(r.Crowded[0]) != "crowd" || r.Crowd != c.from {
				t.Errorf("%d at once: told %v, listed %+v", c.from, told, r.Crowded)
			}
			meet("more", c.from+2)
			if told["pay"] != 2 {
				t.Errorf("%d at once are told %d times", c.from+2, told["pay"]-1)
			}
		})
	}
}

func TestSimultaneousDeliveriesAreCountedAndListed(t *testing.T) {
	clause.Proves(t, "MAP-MON.2")
	synctest.Test(t, func(t *testing.T) {
		n := start(t, memstore.New())
		release := make(chan struct{})
		var work sync.WaitGroup
		work.Go(func() { n.deliver(t, "pay", "a", func() error { <-release; return nil }) })
		synctest.Wait()
		call := semel.Call{Tenant: "acme", Principal: "p", Operation: "pay", Key: "a", Door: "http"}
		for range 11 {
			if ans, err := n.Begin(t.Context(), call); err != nil || ans.Decision != semel.InFlight {
				t.Fatal(ans.Decision, err)
			}
		}
		work.Go(func() { // joins
			call.Wait = time.Minute
			if ans, err := n.Begin(t.Context(), call); err != nil || ans.Decision != semel.Replay {
				t.Error(ans.Decision, err)
			}
		})
		pass(10 * time.Second)
		close(release)
		work.Wait()
		n.deliver(t, "pay", "a", works) // meets nobody
		r := n.report(t, time.Hour)
		if op := r.Operations[0]; op.Simultaneous != 12 || op.Stopped != 2 || op.Polls != 11 || op.StoppedShare != 2.0/3 || r.Repeated[0].Repeats != 13 {
			t.Errorf("counted %+v", op)
		}
		if len(r.Crowded) != 1 || keyOf(r.Crowded[0]) != "a" || r.Crowded[0].Peak != 12 {
			t.Errorf("crowded %+v", r.Crowded)
		}
		if p := r.Points[len(r.Points)-1]; p.P99 > 0.01 {
			t.Errorf("waiting for another counts as added: %v", p.P99)
		}
	})
}

func TestFailingCallsAreListed(t *testing.T) {
	clause.Proves(t, "MAP-MON.3")
	synctest.Test(t, func(t *testing.T) {
		n := start(t, memstore.New())
		fails := func() error { return semel.Failure(errors.New("no")) }
		for range 3 {
			n.deliver(t, "pay", "a", fails)
		}
		n.deliver(t, "pay", "b", works)
		r := n.report(t, time.Hour)
		if r.Total.FailedAttempts != 3 || len(r.Failing) != 1 || r.Failing[0].FailedAttempts != 3 || r.Failing[0].Attempt != 3 || keyOf(r.Failing[0]) != "a" {
			t.Errorf("%+v, failing %+v", r.Total, r.Failing)
		}
	})
}

func TestFiguresCoverAllNodesAndSurviveARestart(t *testing.T) {
	clause.Proves(t, "MAP-MON.5")
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		nodes := []*node{start(t, st), start(t, st), start(t, st)}
		for range 5 {
			for _, n := range nodes {
				n.deliver(t, "pay", "a", works)
			}
			pass(25 * time.Second)
		}
		want := figures.Sums{Deliveries: 15, Executed: 1, Stopped: 14, StoppedShare: 14.0 / 15}
		for i, n := range nodes {
			if r := n.report(t, time.Hour); r.Total != want || r.Repeated[0].Repeats != 14 {
				t.Errorf("node %d has %+v and %+v", i, r.Total, r.Repeated)
			}
		}
		for _, n := range nodes {
			n.deliver(t, "mail", "b", works)
			n.stop()
		}
		want = figures.Sums{Deliveries: 18, Executed: 2, Stopped: 16, StoppedShare: 16.0 / 18}
		n := start(t, st)
		for d, points := range map[time.Duration]int{time.Hour: 60, 24 * time.Hour: 24} {
			r := n.report(t, d)
			if r.Total != want || r.Nodes != 4 || len(r.Points) != points {
				t.Errorf("after a restart %+v of %d nodes in %d points", r.Total, r.Nodes, len(r.Points))
			}
		}
		pass(5 * time.Hour)
		if r := n.report(t, time.Hour); r.Total != (figures.Sums{}) || len(r.Repeated) != 0 {
			t.Errorf("hours later %+v, %+v", r.Total, r.Repeated)
		}
		if r := n.report(t, 24*time.Hour); r.Total != want {
			t.Errorf("hours later the day has %+v", r.Total)
		}
	})
}

func TestFiguresOfOthersAreTwoSecondsLate(t *testing.T) {
	clause.Proves(t, "MAP-MON.5")
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		a, b := start(t, st), start(t, st)
		pass(time.Hour) // in any second of any minute
		for i := range 150 {
			a.deliver(t, "pay", "k", works)
			pass(1500 * time.Millisecond)
			if got := b.report(t, time.Hour).Total.Deliveries; got != int64(i+1) {
				t.Fatalf("after %d deliveries there are %d", i+1, got)
			}
		}
	})
}

// away is a store that fails, or does what it says has failed.
type away struct {
	*memstore.Store
	mu          sync.Mutex
	fail, mute  bool
	writes      int
	largestCell int
}

func (a *away) set(fail, mute bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail, a.mute = fail, mute
}

// written is how many cells were written, and how large the largest was.
func (a *away) written() (writes, largest int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.writes, a.largestCell
}

func (a *away) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	a.mu.Lock()
	fail := a.fail
	a.mu.Unlock()
	if fail {
		return nil, errors.New("the store is away")
	}
	return a.Store.Get(ctx, id)
}

func (a *away) Now(ctx context.Context) (store.Instant, error) {
	a.mu.Lock()
	fail := a.fail
	a.mu.Unlock()
	if fail {
		return 0, errors.New("the store is away")
	}
	return a.Store.Now(ctx)
}

func (a *away) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	a.mu.Lock()
	fail, mute := a.fail, a.mute
	if w.Record.ID.Operation == "semel.figures" {
		a.writes++
		a.largestCell = max(a.largestCell, len(w.Record.Result.Data))
	}
	a.mu.Unlock()
	if fail {
		return nil, false, errors.New("the store is away")
	}
	rec, applied, err := a.Store.Apply(ctx, w)
	if mute {
		return nil, false, errors.New("the answer is lost")
	}
	return rec, applied, err
}

func TestWhileTheStoreIsAwayANodeShowsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &away{Store: memstore.New()}
		a, b := start(t, st), start(t, st)
		a.deliver(t, "pay", "k", works)
		pass(2 * time.Second)
		if r := b.report(t, time.Hour); r.Alone || r.Total.Deliveries != 1 {
			t.Errorf("before %v, %+v", r.Alone, r.Total)
		}
		st.set(true, false)
		b.figures.Events().Answered(semel.Delivered{Door: "http", FailedOpen: true, ID: semel.ID{Operation: "pay"}})
		pass(2 * time.Second)
		r := b.report(t, time.Hour)
		if want := (figures.Sums{Deliveries: 1, Executed: 1, FailedOpen: 1}); !r.Alone || r.Total != want {
			t.Errorf("meanwhile %v, %+v, want %+v", r.Alone, r.Total, want)
		}
		st.set(false, false)
		pass(2 * time.Second)
		if r := a.report(t, time.Hour); r.Alone || r.Total.FailedOpen != 1 || r.Total.StoppedShare != 0 {
			t.Errorf("afterwards %v, %+v", r.Alone, r.Total)
		}
	})
}

func TestAFailingStoreLosesNothingAndCountsNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &away{Store: memstore.New()}
		a, b := start(t, st), start(t, st)
		a.deliver(t, "pay", "k", works)
		pass(2 * time.Second) // the directory has the node, so that only its cells are written
		for range 90 {
			a.deliver(t, "pay", "k", works)
			st.set(false, true)
			pass(time.Second)
			st.set(true, false)
			pass(time.Second)
			st.set(false, false)
		}
		pass(2 * time.Second)
		if got := b.report(t, time.Hour).Total; got.Deliveries != 91 || got.Executed != 1 {
			t.Errorf("counted %+v", got)
		}
	})
}

// A write whose answer was lost is in the store: the next one goes on from there.
func TestAWriteWhoseAnswerIsLostIsFollowedByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &away{Store: memstore.New()}
		a, b := start(t, st), start(t, st)
		for i := range 3 {
			a.deliver(t, "pay", "k", works)
			st.set(false, i == 1) // that of the second is lost
			pass(time.Second)
			st.set(false, false)
			pass(2 * time.Second)
			if got := b.report(t, time.Hour).Total.Deliveries; got != int64(i+1) {
				t.Errorf("after %d deliveries another node sees %d", i+1, got)
			}
		}
	})
}

// A record that is busy in two hours is counted in each for itself.
func TestARecordThatIsBusyInTwoHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, memstore.New())
		n.deliver(t, "mail", "k", works)
		for _, duplicates := range []int{5, 3} {
			for range duplicates {
				n.deliver(t, "mail", "k", works)
			}
			pass(time.Hour)
		}
		r := n.report(t, 24*time.Hour)
		if len(r.Repeated) != 1 || r.Repeated[0].Repeats != 8 || r.Total.Stopped != 8 {
			t.Errorf("of 8 duplicates %d are counted, and for the record %+v", r.Total.Stopped, r.Repeated)
		}
	})
}

// A node that dies writes nothing more: what it has counted in its last second is lost.
func TestADeadNodeLosesItsLastSecond(t *testing.T) {
	clause.Proves(t, "MAP-MON.5")
	synctest.Test(t, func(t *testing.T) {
		st := &away{Store: memstore.New()}
		a, other := start(t, st), &node{figures: figures.New(st.Store, nil)}
		pass(time.Minute + 300*time.Millisecond)
		for range 75 {
			a.deliver(t, "pay", "k", works)
			pass(100 * time.Millisecond)
		}
		st.set(true, false)
		a.stop()
		got := other.report(t, time.Hour).Total
		if got.Deliveries < 65 || got.Deliveries == 75 || got.Executed != 1 {
			t.Errorf("of 75 deliveries, ten in a second, %d are counted", got.Deliveries)
		}
	})
}

func TestNoDeliveryWaitsForFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &away{Store: memstore.New()}
		n := start(t, st)
		for range 100 {
			n.deliver(t, "pay", "k", works)
		}
		if n, _ := st.written(); n != 0 {
			t.Errorf("deliveries wrote %d cells", n)
		}
		pass(time.Second)
		if n, _ := st.written(); n != 3 { // the directory and the running minute, of all and of the tenant
			t.Errorf("there were %d writes", n)
		}
		pass(time.Hour)
		if n, _ := st.written(); n != 5 { // the minute that was over
			t.Errorf("a quiet node has written %d times", n)
		}
	})
}

func TestCellsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &away{Store: memstore.New()}
		f := figures.New(st, nil)
		f.WriteEvery(10 * time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { f.Run(ctx) })
		defer func() { cancel(); work.Wait() }()
		decided := f.Events().Decided
		for range 6 * 24 {
			for i := range 1000 {
				decided(semel.Decided{
					ID:   semel.ID{Tenant: "a tenant with quite a long name", Operation: fmt.Sprint("operation number ", i), Key: fmt.Sprint("a key that is long ", i)},
					Door: "http", Decision: semel.Replay, Added: time.Duration(i) * time.Microsecond, At: time.Now(),
				})
			}
			pass(10 * time.Minute)
		}
		if _, largest := st.written(); largest > 800<<10 {
			t.Errorf("a cell has %d bytes", largest)
		}
		r, err := f.Read(t.Context(), 7*24*time.Hour, nil)
		if err != nil || r.Total.Stopped != 144_000 || len(r.Repeated) != 20 || len(r.Operations) > 513 {
			t.Errorf("%v, %+v, %d records, %d operations", err, r.Total, len(r.Repeated), len(r.Operations))
		}
	})
}

// What was erased is in no report and in no cell: not of the node that hears of it, nor of one that
// has ended, nor of one that runs. What was counted in sum stays.
func TestErasedRecordsGoEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		ended, a, b := start(t, st), start(t, st), start(t, st)
		for _, n := range []*node{ended, a, b} {
			for _, key := range []string{"anna@example.com", "other"} {
				n.deliver(t, "pay", key, works)
				n.deliver(t, "pay", key, works)
			}
		}
		pass(2 * time.Minute) // into the history
		for _, n := range []*node{ended, a, b} {
			n.deliver(t, "pay", "anna@example.com", works)
		}
		ended.stop()
		pass(2 * time.Second)
		before := a.report(t, time.Hour)
		if len(before.Repeated) != 2 {
			t.Fatalf("%+v", before.Repeated)
		}
		now := time.Now()
		erased := semel.Erased{Includes: func(id semel.ID, at time.Time) bool { return id.Key == "anna@example.com" && !at.After(now) }}
		a.figures.Events().Erased(erased)
		b.figures.Events().Erased(erased)
		pass(2 * time.Second)
		for _, n := range []*node{a, b, start(t, st)} {
			if r := n.report(t, time.Hour); len(r.Repeated) != 1 || keyOf(r.Repeated[0]) != "other" || r.Total != before.Total {
				t.Errorf("repeated %+v, in sum %+v, want %+v", r.Repeated, r.Total, before.Total)
			}
		}
		page, err := st.Search(t.Context(), store.Query{Operation: "semel.figures", Limit: 100})
		if err != nil || len(page.Records) < 7 {
			t.Fatal(len(page.Records), err)
		}
		name := semel.ID{Tenant: "acme", Principal: "p", Operation: "pay", Key: "anna@example.com"}.Encode()
		for _, rec := range page.Records {
			cell, err := st.Get(t.Context(), rec.ID)
			if err != nil || strings.Contains(string(cell.Result.Data), name) {
				t.Errorf("%s names who was erased: %s, %v", rec.ID.Key, cell.Result.Data, err)
			}
		}
		a.deliver(t, "pay", "anna@example.com", works)
		pass(2 * time.Second)
		if r := b.report(t, time.Hour); len(r.Repeated) != 2 {
			t.Errorf("a new call isn't listed: %+v", r.Repeated)
		}
	})
}
