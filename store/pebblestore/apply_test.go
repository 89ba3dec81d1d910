package pebblestore

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// A write is compared with what is stored when it joins a batch. What was read before
// another change of the record was made, which is durable by then, must not count.
func TestAWriteIsNotComparedWithWhatWasReadBeforeAnother(t *testing.T) {
	id := testID("k")
	first, second, third := testRecord(id, 1, semel.Completed), testRecord(id, 2, semel.Completed), testRecord(id, 3, semel.Completed)
	for _, c := range []struct {
		name    string
		stored  bool
		between func(t *testing.T, s *Store)
		want    store.Revision
	}{
		{"an update after an update", true, func(t *testing.T, s *Store) { apply(t, s, second, first.Revision) }, second.Revision},
		{"an update after a purge", true, func(t *testing.T, s *Store) {
			if n, err := s.Purge(t.Context(), []store.Ref{{ID: id, Revision: first.Revision}}); n != 1 || err != nil {
				t.Errorf("Purge gives %d, %v", n, err)
			}
		}, store.Revision{}},
		{"a claim after a claim", false, func(t *testing.T, s *Store) { apply(t, s, second, store.Revision{}) }, second.Revision},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s *Store
			looks := 0
			s = mustOpen(t, "store", &Options{FS: vfs.NewMem(), looked: func() {
				if looks++; looks == 1 {
					c.between(t, s)
				}
			}})
			defer s.Close()
			s.absent.building.Wait()
			w := store.Write{Record: new(third)}
			if looks = 1; c.stored {
				apply(t, s, first, store.Revision{})
				w.Expect = first.Revision
			} else {
				s.absent.complete.Store(false) // so that a claim looks, too
			}
			looks = 0
			cur, ok, err := valued(s.Apply(t.Context(), w))
			if ok || err != nil || cur.Revision != c.want {
				t.Errorf("Apply gives fence %d, %v, %v", cur.Fence, ok, err)
			}
			if looks < 2 {
				t.Errorf("it looked %d times, so nothing came in between", looks)
			}
			rec, err := s.Get(t.Context(), id)
			if now, _, _ := valued(rec, true, err); now.Revision != c.want || (err != nil) != c.want.IsZero() {
				t.Errorf("then fence %d is stored, %v", now.Fence, err)
			}
		})
	}
}

func TestAWriteWithoutARevisionIsRefused(t *testing.T) {
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem()})
	defer s.Close()
	id := testID("k")
	if _, applied, err := s.Apply(t.Context(), store.Write{Record: new(semel.Record{ID: id})}); applied || err == nil {
		t.Errorf("Apply gives %v, %v", applied, err)
	}
	if rec, err := s.Get(t.Context(), id); err == nil {
		t.Errorf("%+v is stored", *rec)
	}
}
