package commerce_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/store/memstore"
)

// interrupted is a store where something else happens before the read with a number.
type interrupted struct {
	*memstore.Store
	reads, at int
	does      func()
}

func (s *interrupted) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	if s.reads++; s.reads == s.at {
		s.does()
	}
	return s.Store.Get(ctx, id)
}

// meanwhile runs a test on two nodes. What the test sets as does happens before the read with the
// number at of the first node, counted from when the test resets reads.
func meanwhile(t *testing.T, test func(t *testing.T, st *interrupted, one, other *semel.Engine, m, others *commerce.Mandates)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := &interrupted{Store: memstore.New()}
		var engines [2]*semel.Engine
		var mandates [2]*commerce.Mandates
		for i, on := range []semel.Store{st, st.Store} {
			var err, err2 error
			engines[i], err = semel.New(on, nil)
			mandates[i], err2 = commerce.NewMandates(engines[i], commerce.MandateOptions{})
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
		}
		test(t, st, engines[0], engines[1], mandates[0], mandates[1])
		for _, e := range engines {
			if err := e.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestTellIsAboutTheAttemptThatItFound: what a gateway says isn't told of an attempt that begins
// after its payment was looked up.
func TestTellIsAboutTheAttemptThatItFound(t *testing.T) {
	meanwhile(t, func(t *testing.T, st *interrupted, one, other *semel.Engine, m, others *commerce.Mandates) {
		tills := []*till{newTill(t, one, m), newTill(t, other, others)}
		for _, till := range tills {
			till.charge = func(commerce.Charge) (commerce.Charged, error) { return commerce.Charged{}, errors.New("no answer") }
		}
		pay := payment()
		told := commerce.Told{Reference: fmt.Sprintf("payment:order%%3A789:2999:USD:%d", pay.IntentAt.Unix()), Refused: true}
		_, _, _ = tills[0].Pay(t.Context(), pay)
		st.reads, st.at, st.does = 0, 2, func() {
			if err := tills[1].Tell(t.Context(), "acme", told); err != nil {
				t.Error(err)
			}
			_, _, _ = tills[1].Pay(t.Context(), pay)
		}
		if err := tills[0].Tell(t.Context(), "acme", told); !errors.Is(err, &semel.Error{Code: semel.CodeIllegalTransition}) {
			t.Error(err)
		}
		if rec := recordOf(t, other); rec.Attempt != 2 || !rec.Held || st.reads < st.at {
			t.Errorf("%+v after %d reads", rec, st.reads)
		}
	})
}

// TestAMandateThatIsMadeMeanwhileStays: whenever somebody else ends a mandate and makes it anew,
// the new one isn't ended by the ID of the first.
func TestAMandateThatIsMadeMeanwhileStays(t *testing.T) {
	for at := 2; at <= 3; at++ {
		meanwhile(t, func(t *testing.T, st *interrupted, _, _ *semel.Engine, m, others *commerce.Mandates) {
			first := made(t, m, alice, "s1", cart)
			var second commerce.Mandate
			st.reads, st.at, st.does = 0, at, func() {
				if err := others.End(t.Context(), alice, first.ID, "bob", "too dear"); err != nil {
					t.Error(err)
				}
				second = made(t, others, alice, "s1", cart)
			}
			if err := m.End(t.Context(), alice, first.ID, "alice", "changed her mind"); !errors.Is(err, semel.ErrNotFound) {
				t.Errorf("%v", err)
			}
			if _, err := m.Find(t.Context(), alice, second.ID); err != nil || second.ID == first.ID {
				t.Errorf("before read %d: %v", at, err)
			}
		})
	}
}
