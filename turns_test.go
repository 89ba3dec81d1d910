package semel_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
)

// inLine is an engine whose operation op refuses everybody after a second.
type inLine struct {
	*semel.Engine
	t    *testing.T
	mu   sync.Mutex
	runs []string // who had a turn
	got  map[string]semel.Decision
}

func newInLine(t *testing.T, opts semel.Options) *inLine {
	t.Helper()
	opts.Operations = []semel.Operation{{Name: "op"}}
	e, err := semel.New(memstore.New(), &opts)
	if err != nil {
		t.Fatal(err)
	}
	return &inLine{Engine: e, t: t, got: map[string]semel.Decision{}}
}

// deliver delivers a call from a network, in the background.
func (l *inLine) deliver(ctx context.Context, network byte, who string) {
	call := semel.Call{Operation: "op", Key: "k", BoundTo: who, Network: [16]byte{network}}
	gets := func(d semel.Decision) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.got[who] = d; d == semel.Execute {
			l.runs = append(l.runs, who)
		}
	}
	go func() {
		ans, ok := l.Internal().Turn(ctx, &call)
		if !ok {
			gets(ans.Decision)
			return
		}
		defer l.Internal().EndTurn(&call)
		ans, err := l.Begin(ctx, call)
		if gets(ans.Decision); ans.Decision != semel.Execute {
			if err != nil && ctx.Err() == nil {
				l.t.Error(err)
			}
			return
		}
		<-time.After(time.Second)
		if err := ans.Attempt.End(context.Background(), semel.Ending{Disposition: semel.DispositionAborted}); err != nil {
			l.t.Error(err)
		}
	}()
	synctest.Wait()
}

func (l *inLine) gotBy(who string) semel.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.got[who]
}

// end waits until nobody is left, and nothing is kept of anybody.
func (l *inLine) end() {
	l.t.Helper()
	<-time.After(time.Minute)
	synctest.Wait()
	if keys, waiting := l.InLine(); keys != 0 || waiting != 0 {
		l.t.Errorf("%d lines are left, and %d waiters", keys, waiting)
	}
	if err := l.Close(context.Background()); err != nil {
		l.t.Error(err)
	}
}

func TestNetworksTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newInLine(t, semel.Options{})
		for i := range 3 { // one network asks all the time, and then others ask once
			l.deliver(t.Context(), 1, fmt.Sprint("1-", i))
		}
		l.deliver(t.Context(), 2, "2")
		l.deliver(t.Context(), 3, "3")
		l.end()
		if want := []string{"1-0", "2", "3", "1-1", "1-2"}; !slices.Equal(l.runs, want) {
			t.Errorf("they ran in the order %v, want %v", l.runs, want)
		}
	})
}

func TestTheLineIsBoundedAndLentFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newInLine(t, semel.Options{})
		l.deliver(t.Context(), 0, "first")
		for i := range semel.MaxInLine + 1 { // one network takes all places, while nobody else wants them
			l.deliver(t.Context(), 1, fmt.Sprint("1-", i))
		}
		if d := l.gotBy("1-16"); d != semel.InFlight {
			t.Errorf("who found no place got %q", d)
		}
		for n := byte(2); n <= semel.MaxInLine; n++ { // each of these takes one of it
			l.deliver(t.Context(), n, fmt.Sprint(n))
		}
		if d := l.gotBy("1-1"); d != semel.InFlight || l.gotBy("1-0") != "" {
			t.Errorf("of the network with all places, the second got %q and the first %q", d, l.gotBy("1-0"))
		}
		l.deliver(t.Context(), semel.MaxInLine+1, "newest")
		if d := l.gotBy("newest"); d != semel.InFlight {
			t.Errorf("the newest of 17 networks got %q", d)
		}
		l.end()
		// The line waits five seconds at most, and each refusal takes one.
		if want := []string{"first", "1-0", "2", "3", "4"}; !slices.Equal(l.runs[:min(5, len(l.runs))], want) || len(l.runs) > 6 {
			t.Errorf("they ran in the order %v, want %v", l.runs, want)
		}
	})
}

func TestWhoLeavesTheLineTakesNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newInLine(t, semel.Options{})
		l.deliver(t.Context(), 1, "first")
		gone, hangUp := context.WithCancel(t.Context())
		l.deliver(gone, 2, "gone")
		l.deliver(t.Context(), 3, "last")
		hangUp()
		l.end()
		if want := []string{"first", "last"}; !slices.Equal(l.runs, want) || l.gotBy("gone") != semel.InFlight {
			t.Errorf("they ran in the order %v, want %v; who left got %q", l.runs, want, l.gotBy("gone"))
		}
	})
}

func TestSeatsBoundThoseWhoWaitForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newInLine(t, semel.Options{MaxWaiters: 2})
		l.deliver(t.Context(), 1, "first")
		l.deliver(t.Context(), 2, "waits")
		l.deliver(t.Context(), 2, "no seat")
		if d := l.gotBy("no seat"); d != semel.InFlight {
			t.Errorf("a network with half of the seats got %q for one more", d)
		}
		l.end()
	})
}

// A delivery that looks when nobody is at work, and comes to claim when somebody is, waits
// then.
func TestATurnIsTakenAtTheClaimAsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newInLine(t, semel.Options{})
		owner := semel.Call{Operation: "op", Key: "k", BoundTo: "owner", Network: [16]byte{2}}
		if _, ok := l.Internal().Turn(t.Context(), &owner); !ok {
			t.Fatal("nobody is there")
		}
		l.deliver(t.Context(), 1, "a")
		l.deliver(t.Context(), 1, "b")
		began := time.Now()
		ans, err := l.Begin(t.Context(), owner)
		if err != nil || ans.Decision != semel.Execute || time.Since(began) != time.Second {
			t.Errorf("%s, %v after %v", ans.Decision, err, time.Since(began))
		}
		if err := ans.Attempt.Complete(t.Context(), semel.Result{}); err != nil {
			t.Error(err)
		}
		l.Internal().EndTurn(&owner)
		l.end()
		if d := l.gotBy("b"); d != semel.OtherCaller {
			t.Errorf("the stranger got %q", d)
		}
	})
}

// A turn that passes on unused is waited for, too, by who comes to claim.
func TestATurnThatIsNotUsedPassesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newInLine(t, semel.Options{})
		call := func(network byte, who string) semel.Call {
			return semel.Call{Operation: "op", Key: "k", BoundTo: who, Network: [16]byte{network}}
		}
		owner, slow := call(2, "owner"), call(3, "slow")
		if _, ok := l.Internal().Turn(t.Context(), &owner); !ok {
			t.Fatal("nobody is there")
		}
		l.deliver(t.Context(), 1, "first")
		if _, ok := l.Internal().Turn(t.Context(), &slow); !ok {
			t.Fatal("the turn didn't come when the first was refused")
		}
		began := time.Now()
		ans, err := l.Begin(t.Context(), owner)
		if err != nil || ans.Decision != semel.Execute || time.Since(began) != 2*time.Second {
			t.Fatalf("%s, %v after %v", ans.Decision, err, time.Since(began))
		}
		if ans, err := l.Begin(t.Context(), slow); err != nil || ans.Decision != semel.InFlight {
			t.Errorf("who was too slow got %s, %v", ans.Decision, err)
		}
		l.Internal().EndTurn(&slow)
		if err := ans.Attempt.Complete(t.Context(), semel.Result{}); err != nil {
			t.Error(err)
		}
		l.Internal().EndTurn(&owner)
		l.end()
	})
}
