package evidence_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// A row that was deleted, changed, put back or added behind the engine is found.
func TestAuditOfTheStore(t *testing.T) {
	clause.Proves(t, "IDS-XV.2", "IDS-XV.5")
	ctx := context.Background()
	for _, test := range []struct {
		name string
		lie  func(t *testing.T, r *rig)
		want []evidence.Discrepancy
	}{
		{"nothing was done", func(*testing.T, *rig) {}, nil},
		{"a row was deleted", func(t *testing.T, r *rig) { r.remove(t, "done") }, []evidence.Discrepancy{evidence.RecordMissing}},
		{"a held row was deleted, long after its window", func(t *testing.T, r *rig) {
			pass(100 * 24 * time.Hour)
			r.remove(t, "held")
		}, []evidence.Discrepancy{evidence.RecordMissing}},
		{"a row was deleted when its window was over", func(t *testing.T, r *rig) {
			pass(100 * 24 * time.Hour)
			r.remove(t, "done")
		}, nil},
		{"an operator purged one", func(t *testing.T, r *rig) {
			pass(2 * time.Second)
			if err := r.Purge(ctx, idOf("done"), semel.Removal{Reason: "old"}); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"a result was changed", func(t *testing.T, r *rig) {
			r.put(t, "done", func(rec *semel.Record) { rec.Result.Data = []byte("nothing was paid") })
		}, []evidence.Discrepancy{evidence.RecordChanged}},
		{"a window was made longer", func(t *testing.T, r *rig) {
			r.put(t, "done", func(rec *semel.Record) { rec.ExpiresAt = rec.ExpiresAt.Add(time.Hour) })
		}, []evidence.Discrepancy{evidence.RecordChanged}},
		{"a held row was made to run again", func(t *testing.T, r *rig) {
			r.put(t, "held", func(rec *semel.Record) {
				rec.State, rec.Disposition, rec.Held, rec.HeldReason = semel.Failed, semel.DispositionAborted, false, ""
			})
		}, []evidence.Discrepancy{evidence.RecordChanged}},
		{"a row was put back", func(t *testing.T, r *rig) {
			ans, err := r.Begin(ctx, call("acme", "back", "p"))
			before := *ans.Attempt.Record()
			if err := errors.Join(err, ans.Attempt.Complete(ctx, semel.Result{Data: []byte("x")})); err != nil {
				t.Fatal(err)
			}
			r.put(t, "back", func(rec *semel.Record) {
				was := rec.Revision
				*rec = before
				rec.Revision = was
			})
		}, []evidence.Discrepancy{evidence.RecordOlder}},
		{"a row was added", func(t *testing.T, r *rig) {
			r.forge(t, "done", "forged", nil)
		}, []evidence.Discrepancy{evidence.RecordUnknown}},
		{"the reason of a hold was changed", func(t *testing.T, r *rig) {
			r.put(t, "held", func(rec *semel.Record) { rec.HeldReason = "nothing was sent" })
		}, []evidence.Discrepancy{evidence.RecordChanged}},
		{"a row was added, and a delivery got it as its answer", func(t *testing.T, r *rig) {
			r.forge(t, "done", "forged", nil)
			if ans := r.do(t, call("acme", "forged", "p"), "x"); ans.Decision != semel.Replay {
				t.Fatal(ans.Decision)
			}
		}, []evidence.Discrepancy{evidence.RecordUnknown}},
		{"a mark was put in the place of a row", func(t *testing.T, r *rig) {
			r.put(t, "done", func(rec *semel.Record) {
				*rec = semel.Record{ID: rec.ID, Revision: rec.Revision, Fence: rec.Fence, CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt, Mark: &store.Mark{Begun: 1, Newest: 1}, State: rec.State, Disposition: semel.DispositionAborted}
			})
		}, []evidence.Discrepancy{evidence.RecordChanged}},
		{"a lease was renewed, which has no entry", func(t *testing.T, r *rig) {
			ans, err := r.Begin(ctx, call("acme", "long", "p"))
			if err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			synctest.Wait()
			ans.Attempt.Detach()
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil, semel.Operation{Name: "op", Evidence: semel.EvidenceDurable}, semel.Operation{Name: "plain"})
				plain := call("acme", "plain", "p")
				plain.Operation = "plain"
				r.do(t, plain, "x")
				r.do(t, call("acme", "done", "p"), "paid")
				ans, err := r.Begin(ctx, call("acme", "held", "p"))
				if err := errors.Join(err, ans.Attempt.Hold(ctx, "why")); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Settle(ctx, idOf("done"), semel.Settlement{}, ""); err == nil {
					t.Fatal("settled what is not held")
				}
				pass(time.Second)
				test.lie(t, r)
				pages := 0
				got, err := r.log.Audit(ctx, func(*evidence.Audit) { pages++ })
				if err != nil {
					t.Fatal(err)
				}
				kinds := kindsOf(&got)
				for _, f := range got.Faults {
					if f.Operation != "op" || f.Key == "" {
						t.Errorf("the fault is %+v", f)
					}
				}
				if !slices.Equal(kinds, test.want) || got.Found != len(test.want) || pages == 0 || got.Unlogged != 2 || got.Reasons[evidence.NoEvidence] != 1 || got.Reasons[evidence.Reserved] != 1 {
					t.Errorf("found %+v, want %v", got, test.want)
				}
			})
		})
	}
}

// busy is a store in which something happens before a search and whenever a record is read.
type busy struct {
	*memstore.Store
	search func()
	read   func(id semel.ID)
}

func (s *busy) Extras() store.Extras {
	x := s.Store.Extras()
	x.Search = searched{x.Search, s}
	return x
}

type searched struct {
	store.Searcher
	of *busy
}

func (s searched) Search(ctx context.Context, q store.Query) (store.Page, error) {
	s.of.search()
	return s.Searcher.Search(ctx, q)
}

func (s *busy) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	s.read(id)
	return s.Store.Get(ctx, id)
}

// What changes while the audit reads isn't blamed: neither between log and records, nor while
// the audit looks again.
func TestAuditBesideAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		r := newRig(t, nil)
		open := map[string]*semel.Attempt{}
		begin := func(key string) {
			ans, err := r.Begin(ctx, call("acme", key, "p"))
			if err != nil {
				t.Fatal(err)
			}
			open[key] = ans.Attempt
		}
		end := func(key string) {
			if a := open[key]; a != nil {
				if err := a.Complete(ctx, semel.Result{Data: []byte("x")}); err != nil {
					t.Fatal(err)
				}
				delete(open, key)
			}
		}
		begin("one")
		begin("two")
		var reads []string
		st := &busy{Store: r.store, search: func() { // between the log and the records
			end("one")
			begin("new")
		}, read: func(id semel.ID) { // between what the log says about the record and the record
			if id.Operation == "op" {
				reads = append(reads, id.Key)
				end(id.Key)
			}
		}}
		l, err := evidence.New(st, r.keys, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Audit(ctx, nil)
		slices.Sort(reads)
		if err != nil || got.Found != 0 || got.Compared != 3 || !slices.Equal(reads, []string{"new", "new", "one"}) {
			t.Errorf("%v after reading %v: %+v", err, reads, got)
		}
		end("two")
	})
}

// A record that is purged while the audit reads is neither a fault nor forgotten.
func TestAuditBesideAPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.do(t, call("acme", "k", "p"), "x")
		pass(2 * time.Second)
		r.put(t, "k", func(rec *semel.Record) { rec.Result.Data = []byte("y") }) // so that the audit looks again
		st := &busy{Store: r.store, search: func() {}, read: func(id semel.ID) {
			if id.Operation == "op" {
				r.remove(t, "k")
			}
		}}
		l, err := evidence.New(st, r.keys, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Audit(t.Context(), nil)
		if err != nil || got.Reasons[evidence.Gone] != 1 || got.Found != 0 {
			t.Errorf("%v: %+v", err, got)
		}
	})
}
