package evidence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// headless hides the head of a log, as somebody does who deletes it.
type headless struct {
	*memstore.Store
	hidden bool
}

func (s *headless) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	if s.hidden && id.Operation == "semel.cell" {
		return nil, semel.ErrNotFound
	}
	return s.Store.Get(ctx, id)
}

func TestALogWithoutItsHeadIsNotSigned(t *testing.T) {
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	st := &headless{Store: memstore.New()}
	open := func() *evidence.Log {
		t.Helper()
		l, err := evidence.New(st, keys, nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	_ = open() // a process that dies before it has signed anything
	entry := store.Entry{Leaf: []byte(`{"artifact_id":"ev_1"}`)}
	if err := st.AppendEvidence(t.Context(), []store.Entry{entry}); err != nil {
		t.Fatal(err)
	}
	l := open()
	if err := errors.Join(l.Integrate(t.Context()), l.Fault()); err != nil {
		t.Fatalf("a log that has begun is not signed: %v", err)
	}
	st.hidden = true
	for range 2 { // starting again changes nothing
		l = open()
		if err := l.Integrate(t.Context()); !errors.Is(err, evidence.ErrTampered) || !errors.Is(l.Fault(), evidence.ErrTampered) {
			t.Errorf("without its head it is signed: %v, %v", err, l.Fault())
		}
	}
	st.hidden = false
	if l := open(); l.Fault() != nil {
		t.Error(l.Fault())
	}
}
