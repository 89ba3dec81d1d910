package memstore_test

import (
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

func TestARecordCopiedToAnotherStoreCanBeEnded(t *testing.T) {
	one, two := memstore.New(), memstore.New()
	ops := &semel.Options{Operations: []semel.Operation{{Name: "op", Lease: time.Second}}}
	e, err := semel.New(one, ops)
	if err != nil {
		t.Fatal(err)
	}
	call := semel.Call{Operation: "op", Key: "k"}
	ans, err := e.Begin(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := one.Get(t.Context(), ans.Record.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, applied, err := two.Apply(t.Context(), store.Write{Record: rec}); err != nil || !applied {
		t.Fatal(applied, err)
	}
	other, err := semel.New(two, ops)
	if err != nil {
		t.Fatal(err)
	}
	two.Advance(time.Minute)
	if ans, err = other.Begin(t.Context(), call); err != nil || ans.Decision != semel.Held {
		t.Fatal(ans.Decision, err)
	}
}
