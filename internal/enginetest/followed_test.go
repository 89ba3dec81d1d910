package enginetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// An end whose answer was lost, and that others have followed when it is sent again,
// has arrived: its holder is not told that it lost its right.
func TestAnEndThatWasFollowedIsNoLostLease(t *testing.T) {
	type follow func(t *testing.T, e *semel.Engine, rec semel.Record)
	settled := func(t *testing.T, e *semel.Engine, rec semel.Record) {
		_, err := e.Internal().SettleMessage(t.Context(), rec.ID, rec.Outbox[0].ID, store.MessageFinding{State: store.MessageDelivered})
		must(t, err)
	}
	again := func(t *testing.T, e *semel.Engine, _ semel.Record) { begin(t, e, call("k")) }
	for name, c := range map[string]struct {
		end    func(a *semel.Attempt) error
		follow follow
	}{
		"completed, and a message was delivered": {func(a *semel.Attempt) error { return a.Complete(context.Background(), data("x")) }, settled},
		"failed, and a further attempt was made": {func(a *semel.Attempt) error {
			return a.Fail(context.Background(), store.Failure{Code: "c", Message: "m"}, data("x"))
		}, again},
		"aborted, and a further attempt was made": {func(a *semel.Attempt) error { return a.Abort(context.Background(), store.Failure{Code: "c"}) }, again},
	} {
		t.Run(name, func(t *testing.T) {
			op := semel.Operation{OnFailure: semel.RetryFailure}
			stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
				other := engineOn(t, st.mem, op)
				a := begin(t, e, call("k"))
				must(t, a.Send(message("m")))
				st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
					st.writeBy(nil)
					if _, applied, err := st.mem.Apply(ctx, w); !applied || err != nil {
						t.Errorf("applied %v, %v", applied, err)
					}
					<-time.After(time.Second)
					c.follow(t, other, *w.Record)
					return nil, false, errors.New("the answer was lost")
				})
				must(t, c.end(a))
				must(t, c.end(a)) // said again
				if err := a.Renew(t.Context()); !errors.Is(err, &semel.Error{Code: semel.CodeAlreadyEnded}) {
					t.Errorf("renewed: %v", err)
				}
			})
		})
	}
	t.Run("what another has said is no end of this one", func(t *testing.T) {
		stalls(t, semel.Operation{}, func(t *testing.T, e *semel.Engine, st *stalling) {
			other := engineOn(t, st.mem, semel.Operation{})
			a := begin(t, e, call("k"))
			st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				st.writeBy(nil)
				must(t, attach(t, other, "k", a.Fence()).Hold(ctx, "who knows"))
				<-time.After(time.Second)
				_, err := other.Settle(ctx, id("k"), semel.Settlement{Outcome: semel.DispositionRejected, Failure: &store.Failure{Code: "no"}}, "by hand")
				must(t, err)
				return nil, false, errors.New("the connection was lost")
			})
			if err := a.Complete(t.Context(), data("x")); !errors.Is(err, semel.ErrLeaseLost) {
				t.Errorf("got %v", err)
			}
		})
	})
}
