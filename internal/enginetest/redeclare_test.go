package enginetest

import (
	"errors"
	"testing"

	"github.com/semelhq/semel"
)

// What a declaration leaves out is gone once it is committed, and one that fails changes
// nothing.
func TestRedeclare(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		declare := func(fail error, names ...string) (func(), error) {
			return r.Internal().Redeclare(func() error {
				for _, name := range names {
					must(t, r.Register(semel.Operation{Name: name}))
				}
				return fail
			})
		}
		knows := func(want ...string) {
			t.Helper()
			var got []string
			for _, op := range r.Internal().Operations() {
				got = append(got, op.Name)
			}
			if len(got) != len(want) {
				t.Fatalf("the engine has %q, want %q", got, want)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("the engine has %q, want %q", got, want)
				}
			}
		}
		commit, err := declare(nil, "charge", "refund")
		must(t, err)
		commit()
		knows("charge", "op", "refund")
		failure := errors.New("the rest is wrong")
		if _, err := declare(failure, "other"); !errors.Is(err, failure) {
			t.Fatalf("got %v", err)
		}
		knows("charge", "op", "refund")

		c := call("k")
		c.Operation = "refund"
		running := begin(t, r.Engine, c)
		commit, err = declare(nil, "charge", "new")
		must(t, err)
		knows("charge", "new", "op", "refund") // until everything else has changed
		commit()
		knows("charge", "new", "op")
		_, err = r.Begin(t.Context(), c)
		wantCode(t, err, semel.CodeUnknownOperation)
		must(t, running.Complete(t.Context(), data("done"))) // what runs goes on

		must(t, r.Register(semel.Operation{Name: "late"}))
		commit, err = declare(nil, "charge")
		must(t, err)
		commit()
		knows("charge", "late", "op") // nobody has declared it
	})
}

// While operations are declared, deliveries are judged by those of before. So a declaration that
// is refused in the end leaves nothing in the records, and what declares finds its own.
func TestNobodyIsJudgedByWhatIsBeingDeclared(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		commit, err := r.Internal().Redeclare(func() error { return r.Register(semel.Operation{Name: "charge"}) })
		must(t, err)
		commit()
		c, refused := call("k"), errors.New("the rest is wrong")
		c.Operation = "charge"
		_, err = r.Internal().Redeclare(func() error {
			must(t, r.Register(semel.Operation{Name: "charge", OnAbandoned: semel.RetryAbandoned}, semel.Operation{Name: "new"}))
			if op, ok := r.Internal().Operation("new"); !ok || op.Lease != semel.DefaultLease {
				t.Errorf("what declares finds %+v, %t", op, ok)
			}
			if a := begin(t, r.Engine, c); a.Record().Policy.Retry {
				t.Error("the claim has the policy that is being declared")
			}
			other := c
			other.Operation = "new"
			_, err := r.Begin(t.Context(), other)
			wantCode(t, err, semel.CodeUnknownOperation)
			return refused
		})
		if !errors.Is(err, refused) {
			t.Fatal(err)
		}
		if op, _ := r.Internal().Operation("charge"); op.OnAbandoned != semel.HoldAbandoned {
			t.Errorf("the operation is %+v", op)
		}
	})
}
