package memstore_test

import (
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

func TestRecordsEndWithTheStore(t *testing.T) {
	clause.Proves(t, "ON-MEMORY", "G-LEVEL")
	s := memstore.New()
	rec := semel.Record{ID: semel.ID{Tenant: "t", Operation: "op", Key: "k"}, Revision: store.Revision{1}}
	if _, applied, err := s.Apply(t.Context(), store.Write{Record: &rec}); err != nil || !applied {
		t.Fatalf("Apply = %v, %v", applied, err)
	}
	d, err := s.Durability(t.Context())
	if err != nil || d.Level != store.LevelProcess || len(d.Unsafe) != 1 {
		t.Fatalf("the level is %s, unsafe are %q, %v", d.Level, d.Unsafe, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), rec.ID); err == nil {
		t.Errorf("a closed store has %+v", got)
	}
	if s.Len() != 0 {
		t.Errorf("it still keeps %d records", s.Len())
	}
}
