package evidence_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/store"
)

// version1 is an entry as version 1 would have written it.
func version1(t testing.TB, en store.Entry, contents bool) store.Entry {
	t.Helper()
	var leaf map[string]any
	if err := json.Unmarshal(en.Leaf, &leaf); err != nil {
		t.Fatal(err)
	}
	leaf["v"] = 1
	payload := leaf["payload"].(map[string]any)
	for _, name := range []string{"operation_ref", "sequence", "sequence_ref", "unfinished"} {
		delete(payload, name)
	}
	if !contents {
		delete(payload, "content")
	}
	plain, err := json.Marshal(leaf)
	if err != nil {
		t.Fatal(err)
	}
	if en.Leaf, err = canon.Canonicalize(plain, canon.JCS); err != nil {
		t.Fatal(err)
	}
	en.Hash = [32]byte{}
	return en
}

// scribe writes records with their entries, as an engine does, in the form of some version.
type scribe struct {
	*rig
	version  int
	contents bool
	writes   byte
}

// write writes next in the place of prev, which is nil if there is nothing.
func (s *scribe) write(t testing.TB, prev, next *semel.Record, change store.Change) {
	t.Helper()
	ctx := context.Background()
	s.writes++
	next.Revision = store.Revision{0: 0xee, 1: s.writes}
	w := store.Write{Record: next}
	if prev != nil {
		w.Expect = prev.Revision
	}
	if change != store.ChangePostponed {
		w.Evidence = s.log.Changed(&semel.Operation{Name: "op"}, prev, next, change)
	}
	if s.version == 1 {
		for i := range w.Evidence {
			w.Evidence[i] = version1(t, w.Evidence[i], s.contents)
		}
	}
	if change == store.ChangePurged {
		if err := s.store.AppendEvidence(ctx, w.Evidence); err != nil {
			t.Fatal(err)
		}
		if n, err := s.store.Purge(ctx, []store.Ref{{ID: prev.ID, Revision: prev.Revision}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		return
	}
	if _, ok, err := s.store.Apply(ctx, w); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

// sequenceID is that of the sequences of these tests.
func sequenceID() semel.ID { return idOf("seq") }

// number is a number of a sequence as programs before version 2 kept the newest one.
func numberOf(from *semel.Record, n uint64) *semel.Record {
	rec := *from
	rec.ID, rec.Sequence = sequenceID(), n
	rec.Fence += int64(n) * 1000
	rec.Origin = rec.Fence
	rec.Fingerprint = semel.FingerprintOf(semel.SchemeRaw, fmt.Append(nil, n))
	rec.Result.Data = fmt.Append(nil, "result ", n)
	return &rec
}

// aside is the record of a number that is no longer the newest.
func aside(rec *semel.Record) *semel.Record {
	moved := *rec
	moved.ID = rec.ID.Numbered(rec.Sequence)
	return &moved
}

// keepAsBefore writes three numbers of a sequence as programs before version 2 did, and
// returns the newest.
func (s *scribe) keepAsBefore(t testing.TB) (newest *semel.Record) {
	t.Helper()
	rec, err := s.store.Get(context.Background(), idOf("done"))
	if err != nil {
		t.Fatal(err)
	}
	var prev *semel.Record
	for n := uint64(1); n <= 3; n++ {
		ended := numberOf(rec, n)
		claim := *ended
		claim.State, claim.Disposition, claim.Result, claim.ExpiresAt, claim.EndedAt = semel.Processing, 0, semel.Result{}, 0, 0
		claim.LeaseUntil = claim.StartedAt.Add(time.Minute)
		if prev != nil {
			s.write(t, nil, aside(prev), store.ChangePostponed)
		}
		s.write(t, prev, &claim, store.ChangeClaimed)
		s.write(t, &claim, ended, store.ChangeEnded)
		prev = ended
	}
	return prev
}

// mark is the mark of the sequence.
func mark(from *semel.Record) *semel.Record {
	return &semel.Record{ID: sequenceID(), Fence: from.Fence, Mark: &store.Mark{Begun: 3, Newest: 3}, State: semel.Failed, Disposition: semel.DispositionAborted, CreatedAt: from.CreatedAt, UpdatedAt: from.UpdatedAt}
}

// Sequences that earlier versions kept are neither a contradiction nor a discrepancy, and
// what isn't as they kept it is found.
func TestSequencesOfEarlierVersions(t *testing.T) {
	for _, test := range []struct {
		name string
		lie  func(t *testing.T, s *scribe, newest *semel.Record)
		want []evidence.Discrepancy
		why  map[evidence.WhyUnlogged]int // besides the records that every case has
	}{
		{"as they were", func(*testing.T, *scribe, *semel.Record) {}, nil, nil},
		{"with a mark, and the newest number in a record of its own", func(t *testing.T, s *scribe, newest *semel.Record) {
			s.write(t, nil, aside(newest), store.ChangePostponed)
			s.write(t, newest, mark(newest), store.ChangePostponed)
		}, nil, map[evidence.WhyUnlogged]int{evidence.SequenceMark: 1}},
		{"with a mark, and the newest number lost", func(t *testing.T, s *scribe, newest *semel.Record) {
			s.write(t, newest, mark(newest), store.ChangePostponed)
		}, []evidence.Discrepancy{evidence.RecordMissing}, map[evidence.WhyUnlogged]int{evidence.SequenceMark: 1}},
		{"with a mark, and the newest number purged", func(t *testing.T, s *scribe, newest *semel.Record) {
			own := aside(newest)
			s.write(t, nil, own, store.ChangePostponed)
			s.write(t, newest, mark(newest), store.ChangePostponed)
			s.version = 2
			s.write(t, own, aside(newest), store.ChangePurged)
		}, nil, map[evidence.WhyUnlogged]int{evidence.SequenceMark: 1}},
		{"with a number that somebody added", func(t *testing.T, s *scribe, newest *semel.Record) {
			s.write(t, nil, aside(numberOf(newest, 9)), store.ChangePostponed)
		}, []evidence.Discrepancy{evidence.RecordUnknown}, nil},
	} {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, version %d", test.name, version), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, nil)
					r.do(t, call("acme", "done", "p"), "paid")
					pass(time.Second)
					s := &scribe{rig: r, version: version, contents: true}
					newest := s.keepAsBefore(t)
					pass(time.Second)
					for n := uint64(1); n < newest.Sequence; n++ {
						r.replay(t, sequenceID().Numbered(n))
					}
					test.lie(t, s, newest)
					got, err := r.log.Audit(t.Context(), nil)
					if err != nil {
						t.Fatal(err)
					}
					delete(got.Reasons, evidence.Reserved)
					if kinds := kindsOf(&got); !slices.Equal(kinds, test.want) || got.Reasons[evidence.SequenceMark] != test.why[evidence.SequenceMark] || len(got.Reasons) != len(test.why) {
						t.Errorf("found %+v, want %v and %v", got, test.want, test.why)
					}
					if report := r.verified(t); report.Finding != nil {
						t.Errorf("the story is blamed: %s", report.Finding)
					}
				})
			})
		}
	}
}

// A number that ran twice, in a sequence of earlier versions, is a contradiction.
func TestANumberOfAnEarlierVersionThatRanTwice(t *testing.T) {
	for _, version := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			r.do(t, call("acme", "done", "p"), "paid")
			s := &scribe{rig: r, version: version, contents: true}
			newest := s.keepAsBefore(t)
			again := *newest
			again.State, again.Disposition, again.Result, again.ExpiresAt, again.EndedAt = semel.Processing, 0, semel.Result{}, 0, 0
			again.Fence++
			again.Origin = again.Fence
			s.write(t, newest, &again, store.ChangeClaimed)
			if report := r.verified(t); report.ContradictionsFound != 1 {
				t.Errorf("version %d: %+v", version, report)
			}
		})
	}
}

// replay has the log told that a delivery got what a record is.
func (r *rig) replay(t testing.TB, id semel.ID) {
	t.Helper()
	rec, err := r.store.Get(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	c := call("acme", "seq", "p")
	c.Sequence = rec.Sequence
	op := &semel.Operation{Name: "op", Evidence: semel.EvidenceDurable}
	if err := r.log.Decided(context.Background(), op, &c, &semel.Answer{Decision: semel.Replay, Record: rec}, nil); err != nil {
		t.Fatal(err)
	}
}

// A number that somebody adds to a sequence is found, by the audit and, if a delivery got it,
// in the story.
func TestANumberThatWasAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.do(t, call("acme", "done", "p"), "paid")
		pass(time.Second)
		done, err := r.store.Get(t.Context(), idOf("done"))
		if err != nil {
			t.Fatal(err)
		}
		s := &scribe{rig: r, version: evidence.Version}
		s.write(t, nil, mark(done), store.ChangePostponed)
		first := aside(numberOf(done, 1))
		s.write(t, nil, first, store.ChangeEnded)
		r.replay(t, first.ID)
		c := call("acme", "seq", "p") // a delivery is refused by the mark
		c.Sequence = 1
		op := &semel.Operation{Name: "op", Evidence: semel.EvidenceDurable}
		if err := r.log.Decided(t.Context(), op, &c, &semel.Answer{Decision: semel.Superseded, Record: &semel.Record{ID: sequenceID(), Sequence: 2}}, nil); err != nil {
			t.Fatal(err)
		}
		forged := aside(numberOf(done, 2))
		s.write(t, nil, forged, store.ChangePostponed)
		r.replay(t, forged.ID)
		got, err := r.log.Audit(t.Context(), nil)
		if err != nil || got.Found != 1 || got.Faults[0].Kind != evidence.RecordUnknown || got.Faults[0].Key != "seq" || got.Faults[0].Sequence != 2 || got.Reasons[evidence.SequenceMark] != 1 {
			t.Errorf("%+v, %v", got, err)
		}
		// The entries of a number are found by the key that the caller gave.
		found, err := r.store.FindEvidence(t.Context(), r.log.Name("acme", "seq"), 0, 100)
		if err != nil || len(found) != 5 {
			t.Errorf("%v, %v", found, err)
		}
		if report := r.verified(t); report.ContradictionsFound != 1 || report.Finding.First != report.Finding.Last {
			t.Errorf("%+v", report)
		}
		checkForm(t, r)
	})
}

func kindsOf(a *evidence.Audit) (kinds []evidence.Discrepancy) {
	for i := range a.Faults {
		kinds = append(kinds, a.Faults[i].Kind)
	}
	return kinds
}

// Only entries of the first versions may say nothing about what a record is.
func TestEntriesWithoutContents(t *testing.T) {
	for _, version := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			r.do(t, call("acme", "done", "p"), "paid")
			pass(time.Second)
			rec, err := r.store.Get(t.Context(), idOf("done"))
			if err != nil {
				t.Fatal(err)
			}
			next := *rec
			next.ID.Key = "other"
			next.Fence, next.Origin = next.Fence+1, next.Origin+1
			entries := r.log.Changed(&semel.Operation{Name: "op"}, nil, &next, store.ChangeEnded)
			for i := range entries {
				entries[i] = version1(t, entries[i], false)
				if version == 2 {
					entries[i].Leaf = bytes.Replace(entries[i].Leaf, []byte(`"v":1`), []byte(`"v":2`), 1)
				}
			}
			next.Revision[0]++
			if _, ok, err := r.store.Apply(t.Context(), store.Write{Record: &next, Evidence: entries}); !ok || err != nil {
				t.Fatal(ok, err)
			}
			got, err := r.log.Audit(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if version == 1 && (got.Found != 0 || got.Reasons[evidence.NoContents] != 1) {
				t.Errorf("version 1: %+v", got)
			}
			if version == 2 && (got.Found != 1 || got.Faults[0].Kind != evidence.RecordUnknown) {
				t.Errorf("version 2: %+v", got)
			}
		})
	}
}

// A restored record must be what it was at some time before.
func TestAuditOfARestoredStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		ans, err := r.Begin(t.Context(), call("acme", "older", "p"))
		if err != nil {
			t.Fatal(err)
		}
		backup := *ans.Attempt.Record()
		if err := ans.Attempt.Complete(t.Context(), semel.Result{Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		r.do(t, call("acme", "same", "p"), "paid")
		r.do(t, call("acme", "lied", "p"), "paid")
		r.do(t, call("acme", "lost", "p"), "paid")
		pass(time.Second)
		r.put(t, "older", func(rec *semel.Record) {
			was := rec.Revision
			*rec = backup
			rec.Revision = was
		})
		r.put(t, "lied", func(rec *semel.Record) { rec.Result.Data = []byte("nothing") })
		r.remove(t, "lost")
		r.forge(t, "same", "unheard", nil)
		if _, err := r.Internal().NewEpoch(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.do(t, call("acme", "lost", "p"), "paid again")
		got, err := r.log.Audit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.Found != 1 || got.Faults[0].Key != "lied" || got.Faults[0].Kind != evidence.RecordChanged || got.Compared != 3 || got.Reasons[evidence.BeforeRestore] != 1 {
			t.Errorf("%+v", got)
		}
	})
}
