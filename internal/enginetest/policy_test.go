package enginetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store/memstore"
)

// programs runs a test in virtual time with a store that programs of unequal
// declarations share.
func programs(t *testing.T, body func(t *testing.T, st *memstore.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { body(t, memstore.New()) })
}

// program is an engine with its own declarations.
func program(t *testing.T, st semel.Store, opts semel.Options, ops ...semel.Operation) *semel.Engine {
	t.Helper()
	opts.Operations = ops
	e, err := semel.New(st, &opts)
	must(t, err)
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	return e
}

// swept runs a sweep without trouble.
func swept(t *testing.T, e *semel.Engine) semel.Swept {
	t.Helper()
	n, err := e.Sweep(t.Context())
	must(t, err)
	synctest.Wait()
	return n
}

// TestAProgramLeavesAloneWhatItDoesNotKnow: two programs with different operations on
// one store.
func TestAProgramLeavesAloneWhatItDoesNotKnow(t *testing.T) {
	t.Run("an abandoned attempt that may run again", func(t *testing.T) {
		programs(t, func(t *testing.T, st *memstore.Store) {
			op := semel.Operation{Name: "op", Lease: 3 * time.Second, Effects: []string{"charge"}}
			knows, stranger := program(t, st, semel.Options{}, op), program(t, st, semel.Options{}, semel.Operation{Name: "other"})
			begin(t, knows, call("k")).Detach()
			pass(time.Minute)
			if n := swept(t, stranger); n != (semel.Swept{Due: 1, Left: 1}) {
				t.Errorf("the stranger swept %+v", n)
			}
			if n := swept(t, knows); n.Abandoned != 1 {
				t.Errorf("the one that knows it swept %+v", n)
			}
			begin(t, knows, call("k"))
		})
	})
	t.Run("a held record that its reconciler settles", func(t *testing.T) {
		programs(t, func(t *testing.T, st *memstore.Store) {
			asked := 0
			op := semel.Operation{Name: "op", Lease: 3 * time.Second, Reconcile: func(context.Context, semel.Record) (semel.Settlement, error) {
				asked++
				return semel.Settlement{Outcome: semel.DispositionCompleted, Result: data("found")}, nil
			}}
			without := op
			without.Reconcile = nil
			knows, stranger, older := program(t, st, semel.Options{}, op), program(t, st, semel.Options{}), program(t, st, semel.Options{}, without)
			begin(t, knows, call("k")).Detach()
			for range 60 {
				pass(time.Minute)
				swept(t, stranger)
				swept(t, older) // holds it, and leaves it to who can ask
			}
			if asked != 0 {
				t.Fatalf("asked %d times", asked)
			}
			swept(t, knows)
			if ans := decides(t, knows, call("k"), semel.Replay); string(ans.Record.Result.Data) != "found" || asked != 1 {
				t.Errorf("asked %d times; duplicates get %q", asked, ans.Record.Result.Data)
			}
		})
	})
	t.Run("an expired record that is to be archived", func(t *testing.T) {
		clause.Proves(t, "MAP-EXP.3")
		programs(t, func(t *testing.T, st *memstore.Store) {
			op := semel.Operation{Name: "op", Window: time.Hour, OnExpiry: semel.ArchiveExpired}
			var kept []string
			shelf := semel.Options{Archive: func(_ context.Context, recs []semel.Record) error {
				for i := range recs {
					kept = append(kept, recs[i].ID.Key)
				}
				return nil
			}}
			forgot := op
			forgot.OnExpiry = semel.DeleteExpired
			knows := program(t, st, shelf, op)
			must(t, begin(t, knows, call("k")).Complete(t.Context(), data("x")))
			pass(2 * time.Hour)
			swept(t, program(t, st, semel.Options{}))
			// A later version that does not archive any more has no archive, and can't
			// delete what was promised to be kept.
			if n, err := program(t, st, semel.Options{}, forgot).Sweep(t.Context()); n.Purged != 0 || err == nil {
				t.Errorf("swept %+v, %v", n, err)
			}
			if st.Len() != 1 {
				t.Fatal("it was deleted")
			}
			if n := swept(t, knows); n.Purged != 1 || !slices.Equal(kept, []string{"k"}) {
				t.Errorf("swept %+v, archived %q", n, kept)
			}
		})
	})
	t.Run("a held record that an operator settles there", func(t *testing.T) {
		programs(t, func(t *testing.T, st *memstore.Store) {
			knows := program(t, st, semel.Options{}, semel.Operation{Name: "op", Window: 30 * 24 * time.Hour})
			stranger := program(t, st, semel.Options{})
			must(t, begin(t, knows, call("k")).Hold(t.Context(), "who knows"))
			settled := semel.Settlement{Outcome: semel.DispositionCompleted, Result: data("paid")}
			_, err := stranger.Settle(t.Context(), id("k"), settled, "looked")
			wantCode(t, err, semel.CodeUnknownOperation)
			settled.Force = true
			_, err = stranger.Settle(t.Context(), id("k"), settled, "looked")
			must(t, err)
			pass(29 * 24 * time.Hour)
			if ans := decides(t, knows, call("k"), semel.Replay); string(ans.Record.Result.Data) != "paid" {
				t.Errorf("duplicates get %q", ans.Record.Result.Data)
			}
			wantCode(t, stranger.Purge(t.Context(), id("k"), semel.Removal{Reason: "test"}), semel.CodeUnknownOperation)
			must(t, stranger.Purge(t.Context(), id("k"), semel.Removal{Reason: "test", Force: true}))
		})
	})
	t.Run("messages, and the deliveries of a dispatcher that died", func(t *testing.T) {
		clause.Proves(t, "IDS-XI.S2")
		programs(t, func(t *testing.T, st *memstore.Store) {
			web := program(t, st, semel.Options{}, semel.Operation{Name: "op"}) // without a dispatcher
			var got []string
			dispatcher := func() (*semel.Engine, func()) {
				e := program(t, st, semel.Options{}, semel.Operation{Name: "op"})
				d, err := dispatch.New(e, dispatch.Options{Destinations: map[string]dispatch.Destination{"shop": {
					Sender: dispatch.SenderFunc(func(_ context.Context, x dispatch.Delivery) error {
						got = append(got, string(x.Message.Payload))
						return nil
					}),
				}}})
				must(t, err)
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); _ = d.Run(ctx) }()
				return e, func() { stop(); <-done }
			}
			a := begin(t, web, call("k"))
			for _, m := range []semel.Message{{Name: "free", Payload: []byte("free")}, {Name: "one", Order: "o", Payload: []byte("one")}, {Name: "two", Order: "o", Payload: []byte("two")}} {
				m.Destination = "shop"
				must(t, a.Send(m))
			}
			must(t, a.Complete(t.Context(), data("x")))
			rec, err := web.Lookup(t.Context(), id("k"))
			must(t, err)
			// A dispatcher has claimed the message and its lane, and died.
			dead := program(t, st, semel.Options{})
			must(t, dead.Register(
				semel.Operation{Name: "semel.dispatch/shop", OnAbandoned: semel.RetryAbandoned, OnFailure: semel.RetryFailure},
				semel.Operation{Name: "semel.dispatch.lane/shop", OnAbandoned: semel.RetryAbandoned, OnFailure: semel.RetryFailure}))
			for _, m := range rec.Outbox {
				c := semel.Call{Tenant: "t", Principal: "semel.dispatch", Operation: "semel.dispatch/shop", Key: m.ID}
				begin(t, dead, c).Detach()
			}
			for range 120 { // nobody who can deliver is there
				pass(time.Second)
				swept(t, web)
			}
			after, err := web.Lookup(t.Context(), id("k"))
			if must(t, err); after.Revision != rec.Revision {
				t.Error("a program that has no dispatcher has touched the messages")
			}
			_, stop := dispatcher()
			pass(2 * time.Minute)
			stop()
			slices.Sort(got[:1])
			if len(got) != 3 || slices.Index(got, "one") > slices.Index(got, "two") || !slices.Contains(got, "free") {
				t.Errorf("delivered %q", got)
			}
		})
	})
}

// TestARollingUpgrade adds, changes and removes operations of a store that both
// versions of a program use.
func TestARollingUpgrade(t *testing.T) {
	programs(t, func(t *testing.T, st *memstore.Store) {
		const lease = 3 * time.Second
		archive := semel.Options{Archive: func(context.Context, []semel.Record) error { return nil }}
		old := program(t, st, archive,
			semel.Operation{Name: "changed", Lease: lease, Window: 48 * time.Hour, OnAbandoned: semel.RetryAbandoned},
			semel.Operation{Name: "plain", Lease: lease},
			semel.Operation{Name: "removed", Lease: lease, Window: time.Hour, OnAbandoned: semel.RetryAbandoned})
		next := program(t, st, archive,
			semel.Operation{Name: "changed", Lease: time.Minute, Window: time.Hour},
			semel.Operation{Name: "plain", Lease: lease, Effects: []string{"charge"}},
			semel.Operation{Name: "added", Lease: lease, Effects: []string{"charge"}})
		of := func(operation, key string) semel.Call {
			c := call(key)
			c.Operation = operation
			return c
		}
		named := func(operation, key string) semel.ID {
			i := id(key)
			i.Operation = operation
			return i
		}
		// Each version begins what it knows; then its holders die.
		for _, op := range []string{"changed", "plain", "removed"} {
			begin(t, old, of(op, "old")).Detach()
		}
		for _, op := range []string{"changed", "plain", "added"} {
			begin(t, next, of(op, "next")).Detach()
		}
		// A holder may end its attempt at either: what it was promised holds.
		elsewhere := begin(t, old, of("removed", "elsewhere"))
		elsewhere.Detach()
		a, err := next.Internal().Attach(t.Context(), named("removed", "elsewhere"), elsewhere.Fence())
		must(t, err)
		must(t, a.Renew(t.Context()))
		if left := a.Record().LeaseUntil.Sub(a.Record().UpdatedAt); left != lease {
			t.Errorf("renewed where it is not known the lease is %v", left)
		}
		must(t, a.Complete(t.Context(), data("x")))
		if rec := a.Record(); rec.ExpiresAt.Sub(rec.EndedAt) != time.Hour {
			t.Errorf("completed where it is not known its window is %v", rec.ExpiresAt.Sub(rec.EndedAt))
		}
		pass(2 * time.Minute)
		for range 3 {
			swept(t, next)
			swept(t, old)
		}
		for name, want := range map[[2]string]string{
			{"changed", "old"}:  "abandoned", // which the old version chose
			{"changed", "next"}: "held",
			{"plain", "old"}:    "held", // it kept no ledger, whatever its successor promises
			{"plain", "next"}:   "abandoned",
			{"removed", "old"}:  "abandoned", // by the old version, which knows it
			{"added", "next"}:   "abandoned",
		} {
			rec, err := old.Lookup(t.Context(), named(name[0], name[1]))
			must(t, err)
			got := rec.Disposition.String()
			if rec.Held {
				got = "held"
			}
			if got != want {
				t.Errorf("the attempt of %s by the %s version is %s, want %s", name[0], name[1], got, want)
			}
		}
		// The old version is gone. Nobody knows "removed": its record stays until
		// somebody says that it may go.
		pass(72 * time.Hour)
		if n := swept(t, next); n.Left != 2 || n.Purged == 0 {
			t.Errorf("swept %+v", n)
		}
		gone := named("removed", "old")
		if err := next.Purge(t.Context(), gone, semel.Removal{Reason: "the operation is gone", Force: true}); err != nil {
			t.Error(err)
		}
		if _, err := st.Get(t.Context(), gone); !errors.Is(err, semel.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}
