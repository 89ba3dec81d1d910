package enginetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// behindStore is the store as a node reads it whose reading of the clock is late.
type behindStore struct {
	semel.Store
	by time.Duration
}

func (s *behindStore) Extras() store.Extras { return store.Extras{} }

func (s *behindStore) Now(ctx context.Context) (store.Instant, error) {
	now, err := s.Store.Now(ctx)
	return now.Add(-s.by), err
}

func TestFencesRiseAcrossAPurgeForANodeThatIsBehind(t *testing.T) {
	const behind = 50 * time.Millisecond
	for name, c := range map[string]struct {
		op semel.Operation
		// make leaves a record that may be purged soon.
		make func(t *testing.T, e *semel.Engine)
		// purge makes one try.
		purge func(ctx context.Context, e *semel.Engine) error
	}{
		"by an operator": {
			semel.Operation{},
			func(t *testing.T, e *semel.Engine) {
				must(t, begin(t, e, call("k")).Complete(t.Context(), data("x")))
			},
			func(ctx context.Context, e *semel.Engine) error { return e.Purge(ctx, id("k"), semel.Removal{}) },
		},
		"by an operator, after many attempts": { // faster than the clock
			semel.Operation{OnFailure: semel.RetryFailure},
			func(t *testing.T, e *semel.Engine) {
				for range 1000 {
					must(t, begin(t, e, call("k")).Fail(t.Context(), store.Failure{}, semel.Result{}))
				}
			},
			func(ctx context.Context, e *semel.Engine) error { return e.Purge(ctx, id("k"), semel.Removal{}) },
		},
		"by a sweep": {
			confirming(semel.ConfirmationPolicy{TTL: time.Millisecond}),
			func(t *testing.T, e *semel.Engine) { ask(t, e, call("k")) },
			func(ctx context.Context, e *semel.Engine) error {
				n, err := e.Sweep(ctx)
				if err == nil && n.Purged == 0 {
					err = errors.New("nothing was purged")
				}
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := memstore.New()
				c.op.Name = "op"
				node := func(st semel.Store) *semel.Engine {
					e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{c.op}})
					must(t, err)
					return e
				}
				e, late := node(st), node(&behindStore{st, behind})
				c.make(t, e)
				last, err := st.Get(t.Context(), id("k"))
				must(t, err)
				for start := time.Now(); c.purge(t.Context(), e) != nil; pass(time.Millisecond) {
					if time.Since(start) > 10*time.Second {
						t.Fatal("it is never purged")
					}
				}
				if st.Len() != 0 {
					t.Fatalf("%d records are left", st.Len())
				}
				c.make(t, late)
				first, err := st.Get(t.Context(), id("k"))
				must(t, err)
				if first.Origin <= last.Fence {
					t.Errorf("the fence %d after %d", first.Origin, last.Fence)
				}
				must(t, e.Close(t.Context()))
				must(t, late.Close(t.Context()))
			})
		})
	}
}

// overtaken is a store in which something happens just before a purge arrives.
type overtaken struct {
	*memstore.Store
	before func()
}

func (s *overtaken) Extras() store.Extras { return store.Extras{Purge: s} }

func (s *overtaken) Purge(ctx context.Context, refs []store.Ref) (int, error) {
	s.before()
	return s.Store.Purge(ctx, refs)
}

// A purge of a record that another changes meanwhile deletes nothing, and says so.
func TestAPurgeThatWasOvertakenIsNotDone(t *testing.T) {
	programs(t, func(t *testing.T, mem *memstore.Store) {
		st := &overtaken{Store: mem}
		purged := 0
		e := program(t, st, semel.Options{Events: &semel.Events{Purged: func(semel.Purged) { purged++ }}}, semel.Operation{Name: "op", OnFailure: semel.RetryFailure})
		must(t, begin(t, e, call("k")).Fail(t.Context(), store.Failure{}, semel.Result{}))
		pass(time.Minute)
		var second *semel.Attempt
		st.before = func() { second = begin(t, e, call("k")) }
		wantCode(t, e.Purge(t.Context(), id("k"), semel.Removal{}), semel.CodeIllegalTransition)
		if purged != 0 {
			t.Error("a purge is told of")
		}
		must(t, second.Complete(t.Context(), data("x")))
		decides(t, e, call("k"), semel.Replay)
	})
}
