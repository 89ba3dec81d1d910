package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

func TestDelivery(t *testing.T) {
	clause.Proves(t, "IDS-XI.S2")
	t.Run("a message is delivered once where nothing fails, and settled", func(t *testing.T) {
		r := &receiver{}
		one(t, Destination{Sender: r}, func(t *testing.T, st semel.Store, n *node) {
			id := complete(t, n.engine, "k", message("a", ""))
			synctest.Wait()
			if tries, _ := r.seen(); !slices.Equal(tries, []string{"a"}) {
				t.Fatal(tries)
			}
			if m := state(t, st, id); m.State != store.MessageDelivered || m.NextAt != 0 {
				t.Fatal(m)
			}
			pass(time.Hour)
			if tries, _ := r.seen(); len(tries) != 1 {
				t.Fatal(tries)
			}
		})
	})
	t.Run("a call that fails sends nothing", func(t *testing.T) {
		r := &receiver{}
		one(t, Destination{Sender: r}, func(t *testing.T, st semel.Store, n *node) {
			_, err := n.engine.Do(t.Context(), semel.Call{Operation: "op", Key: "k"}, func(_ context.Context, x semel.Execution) (semel.Result, error) {
				must(t, semel.Send(x, message("a", "")))
				return semel.Result{}, errors.New("rolled back")
			})
			if err == nil {
				t.Fatal("no error")
			}
			pass(time.Hour)
			if tries, _ := r.seen(); len(tries) != 0 {
				t.Fatal(tries)
			}
		})
	})
	t.Run("a message that was sent before the dispatcher started is found", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st, r := memstore.New(), &receiver{}
			e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op"}}})
			must(t, err)
			complete(t, e, "k", message("a", ""), message("b", "lane"))
			n := start(t, st, "one", Options{Destinations: map[string]Destination{"hook": {Sender: r}}})
			pass(5 * time.Second)
			if _, taken := r.seen(); len(taken) != 2 {
				t.Fatal(taken)
			}
			n.halt()
			must(t, e.Close(t.Context()))
		})
	})
	t.Run("two dispatchers deliver a message once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st, r := memstore.New(), &receiver{answer: func(Delivery) error { pass(3 * time.Second); return nil }}
			opts := Options{Destinations: map[string]Destination{"hook": {Sender: r}}}
			a, b := start(t, st, "a", opts), start(t, st, "b", opts)
			for i := range 20 {
				complete(t, a.engine, fmt.Sprint(i), message(fmt.Sprint(i), ""))
			}
			pass(time.Minute)
			if tries, _ := r.seen(); len(tries) != 20 {
				t.Fatal(len(tries))
			}
			a.halt()
			b.halt()
		})
	})
	t.Run("what there is no room for is put off and does not hide the rest", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := memstore.New()
			slow := &receiver{answer: func(Delivery) error { pass(time.Second); return nil }}
			fast := &receiver{}
			n := start(t, st, "one", Options{Queue: 2, Destinations: map[string]Destination{
				"hook": {Sender: slow, Concurrency: 1}, "fast": {Sender: fast},
			}})
			for i := range 50 {
				complete(t, n.engine, fmt.Sprint(i), message(fmt.Sprint(i), ""))
			}
			m := message("x", "")
			m.Destination = "fast"
			complete(t, n.engine, "x", m)
			pass(2 * time.Second)
			if tries, _ := fast.seen(); len(tries) != 1 {
				t.Fatal(tries)
			}
			pass(10 * time.Minute)
			if tries, taken := slow.seen(); len(taken) != 50 || len(tries) != 50 {
				t.Fatal(len(tries), len(taken))
			}
			n.halt()
		})
	})
	t.Run("a delivery whose note was lost is not repeated", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st, r := memstore.New(), &receiver{}
			opts := Options{Destinations: map[string]Destination{"hook": {Sender: r}}}
			var n *node
			n = start(t, st, "a", opts, func(d *Dispatcher) {
				d.crash = func(point string) error {
					if point != "completed" {
						return nil
					}
					n.die()
					return errCrash
				}
			})
			id := complete(t, n.engine, "k", message("a", ""))
			pass(time.Second)
			b := start(t, st, "b", opts)
			pass(time.Minute)
			if tries, _ := r.seen(); len(tries) != 1 {
				t.Fatal(tries)
			}
			if m := state(t, st, id); m.State != store.MessageDelivered {
				t.Fatal(m)
			}
			n.halt()
			b.halt()
		})
	})
	t.Run("stopping ends the try that has begun", func(t *testing.T) {
		r := &receiver{answer: func(Delivery) error { pass(5 * time.Second); return nil }}
		one(t, Destination{Sender: r}, func(t *testing.T, st semel.Store, n *node) {
			id := complete(t, n.engine, "k", message("a", ""))
			synctest.Wait()
			n.halt()
			if m := state(t, st, id); m.State != store.MessageDelivered {
				t.Fatal(m.State)
			}
		})
	})
}

func TestRetries(t *testing.T) {
	down := errors.New("down")
	t.Run("the pauses are random, grow, and are bounded", func(t *testing.T) {
		d := Destination{MinBackoff: time.Second, MaxBackoff: time.Minute}.withDefaults()
		for tries := 1; tries < 200; tries++ {
			limit := time.Minute
			if tries < 7 {
				limit = time.Second << (tries - 1)
			}
			var longest time.Duration
			for range 200 {
				pause := d.backoff(tries)
				if pause < 0 || pause > limit {
					t.Fatalf("try %d: %v, more than %v", tries, pause, limit)
				}
				longest = max(longest, pause)
			}
			if longest < limit*3/4 {
				t.Fatalf("try %d: 200 pauses up to %v and not near %v", tries, longest, limit)
			}
		}
	})
	t.Run("a message is tried until it is taken, under one id", func(t *testing.T) {
		r := &receiver{answer: func(d Delivery) error {
			if d.Try < 5 {
				return down
			}
			return nil
		}}
		one(t, Destination{Sender: r}, func(t *testing.T, st semel.Store, n *node) {
			id := complete(t, n.engine, "k", message("a", ""))
			pass(10 * time.Minute)
			if m := state(t, st, id); m.State != store.MessageDelivered || m.Tries != 4 || len(r.tries) != 5 || len(r.ids) != 1 {
				t.Fatal(m, r.tries)
			}
		})
	})
	t.Run("too many tries park it, and a replay starts again", func(t *testing.T) {
		var up atomic.Bool
		r := &receiver{answer: func(Delivery) error {
			if up.Load() {
				return nil
			}
			return down
		}}
		one(t, Destination{Sender: r, MaxTries: 3, BreakAfter: -1}, func(t *testing.T, st semel.Store, n *node) {
			id := complete(t, n.engine, "k", message("a", ""))
			pass(10 * time.Minute)
			m := state(t, st, id)
			if m.State != store.MessageParked || m.Failure.Code != "too_many_tries" || len(r.tries) != 3 {
				t.Fatal(m, r.tries)
			}
			up.Store(true)
			_, err := Replay(t.Context(), n.engine.Internal(), id, m.ID, "the receiver is back")
			must(t, err)
			pass(5 * time.Second)
			if m := state(t, st, id); m.State != store.MessageDelivered || len(r.tries) != 4 {
				t.Fatal(m, r.tries)
			}
		})
	})
	t.Run("a message that is too old is parked", func(t *testing.T) {
		r := &receiver{answer: func(Delivery) error { return down }}
		one(t, Destination{Sender: r, MaxAge: time.Hour, BreakAfter: -1}, func(t *testing.T, st semel.Store, n *node) {
			id := complete(t, n.engine, "k", message("a", ""))
			pass(3 * time.Hour)
			if m := state(t, st, id); m.State != store.MessageParked || m.Failure.Code != "too_old" {
				t.Fatal(m)
			}
		})
	})
	t.Run("a refusal parks at once, and a discard ends it", func(t *testing.T) {
		r := &receiver{answer: func(Delivery) error { return Park("gone", errors.New("no such place")) }}
		one(t, Destination{Sender: r}, func(t *testing.T, st semel.Store, n *node) {
			id := complete(t, n.engine, "k", message("a", ""))
			pass(time.Minute)
			m := state(t, st, id)
			if m.State != store.MessageParked || m.Failure.Code != "gone" || len(r.tries) != 1 {
				t.Fatal(m)
			}
			found := 0
			for f, err := range Find(t.Context(), n.engine, Query{Destination: "hook"}) {
				must(t, err)
				if found++; f.Call != id || f.Message.ID != m.ID {
					t.Fatal(f)
				}
			}
			if found != 1 {
				t.Fatal(found)
			}
			_, err := Discard(t.Context(), n.engine.Internal(), id, m.ID, "not wanted")
			must(t, err)
			if m := state(t, st, id); m.State != store.MessageDiscarded || m.Failure.Message != "not wanted" {
				t.Fatal(m)
			}
		})
	})
	t.Run("a receiver that panics has not taken it", func(t *testing.T) {
		r := &receiver{answer: func(d Delivery) error {
			if d.Try == 1 {
				panic("no")
			}
			return nil
		}}
		one(t, Destination{Sender: r}, func(t *testing.T, st semel.Store, n *node) {
			id := complete(t, n.engine, "k", message("a", ""))
			pass(time.Minute)
			if m := state(t, st, id); m.State != store.MessageDelivered || m.Tries != 1 {
				t.Fatal(m)
			}
		})
	})
	t.Run("a receiver is not asked again before it wants to be", func(t *testing.T) {
		r := &receiver{answer: func(d Delivery) error {
			if d.Try == 1 {
				return RetryAfter(10*time.Minute, down)
			}
			return nil
		}}
		one(t, Destination{Sender: r}, func(t *testing.T, st semel.Store, n *node) {
			complete(t, n.engine, "k", message("a", ""))
			pass(time.Hour)
			if len(r.at) != 2 || r.at[1].Sub(r.at[0]) < 10*time.Minute || r.at[1].Sub(r.at[0]) > 11*time.Minute {
				t.Fatal(r.at)
			}
		})
	})
	t.Run("a sender that does not return in time is given up", func(t *testing.T) {
		stuck := SenderFunc(func(ctx context.Context, d Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		})
		one(t, Destination{Sender: stuck, MaxTries: 1}, func(t *testing.T, st semel.Store, n *node) {
			id := complete(t, n.engine, "k", message("a", ""))
			pass(16 * time.Second)
			if m := state(t, st, id); m.State != store.MessageParked || !strings.Contains(m.Failure.Message, "deadline") {
				t.Fatal(m)
			}
		})
	})
}

func TestPace(t *testing.T) {
	t.Run("the rate of a destination is kept", func(t *testing.T) {
		r := &receiver{}
		one(t, Destination{Sender: r, Rate: semel.Rate{PerSecond: 2, Burst: 3}}, func(t *testing.T, st semel.Store, n *node) {
			for i := range 23 {
				complete(t, n.engine, fmt.Sprint(i), message(fmt.Sprint(i), ""))
			}
			synctest.Wait()
			if tries, _ := r.seen(); len(tries) != 3 {
				t.Fatal(len(tries))
			}
			pass(10*time.Second - time.Millisecond)
			synctest.Wait()
			if tries, _ := r.seen(); len(tries) != 22 {
				t.Fatal(len(tries))
			}
			pass(time.Minute)
			if tries, _ := r.seen(); len(tries) != 23 {
				t.Fatal(len(tries))
			}
		})
	})
	t.Run("no more than Concurrency tries run at one time", func(t *testing.T) {
		var now, most int
		r := &receiver{}
		r.answer = func(Delivery) error {
			r.mu.Lock()
			now++
			most = max(most, now)
			r.mu.Unlock()
			pass(time.Second)
			r.mu.Lock()
			now--
			r.mu.Unlock()
			return nil
		}
		one(t, Destination{Sender: r, Concurrency: 3}, func(t *testing.T, st semel.Store, n *node) {
			for i := range 30 {
				complete(t, n.engine, fmt.Sprint(i), message(fmt.Sprint(i), ""))
			}
			pass(time.Minute)
			if tries, _ := r.seen(); most != 3 || len(tries) != 30 {
				t.Fatal(most, len(tries))
			}
		})
	})
	t.Run("the breaker saves the tries of messages while a receiver is down", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var up atomic.Bool
			r := &receiver{}
			r.answer = func(Delivery) error {
				if up.Load() {
					return nil
				}
				return errors.New("down")
			}
			changes := make(chan bool, 100)
			st := memstore.New()
			n := start(t, st, "one", Options{
				Destinations: map[string]Destination{"hook": {Sender: r, Concurrency: 1, BreakAfter: 5, BreakFor: time.Minute}},
				Events:       &Events{Breaker: func(_ string, open bool) { changes <- open }},
			})
			for i := range 100 {
				complete(t, n.engine, fmt.Sprint(i), message(fmt.Sprint(i), ""))
			}
			pass(10 * time.Minute)
			// 5 to open it, and one each minute to see.
			if tries, _ := r.seen(); len(tries) < 10 || len(tries) > 16 {
				t.Fatal(len(tries))
			}
			up.Store(true)
			pass(5 * time.Minute)
			if _, taken := r.seen(); len(taken) != 100 {
				t.Fatal(len(taken))
			}
			if len(changes) != 2 || !<-changes || <-changes {
				t.Fatal("the breaker was not opened and closed, once")
			}
			n.halt()
		})
	})
}

func TestDeclarations(t *testing.T) {
	e, err := semel.New(memstore.New(), nil)
	must(t, err)
	_, err = New(e, Options{Interval: -1, Destinations: map[string]Destination{
		"":  {},
		"a": {Rate: semel.Rate{PerSecond: 1}, Timeout: -1, Concurrency: -1},
		"b": {Sender: &receiver{}},
		"c": {Sender: &receiver{}, Rate: semel.Rate{PerSecond: math.NaN(), Burst: 1}},
	}})
	for _, want := range []string{"Interval", "needs a name", `"a": Sender`, `"a": Rate`, `"c": Rate`, `"a": Timeout`, `"a": Concurrency`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if _, err := New(e, Options{Destinations: map[string]Destination{"a": {Sender: &receiver{}, Lease: 1}}}); err == nil {
		t.Error("a lease of a nanosecond was taken")
	}
}

// A rate so slow that its pause has no duration still holds back.
func TestRatesBeyondDurations(t *testing.T) {
	for _, rate := range []semel.Rate{{PerSecond: 1e-12, Burst: 2}, {PerSecond: 1, Burst: math.MaxInt}} {
		t.Run(fmt.Sprintf("%g a second with a burst of %d is kept", rate.PerSecond, rate.Burst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := (&Destination{Rate: rate}).limiter()
				for range 2 {
					must(t, b.Wait(t.Context()))
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if err := b.Wait(ctx); (err != nil) != (rate.Burst == 2) {
					t.Errorf("the third token: %v", err)
				}
			})
		})
	}
}
