package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

const (
	ruleEvidence = "Write.Evidence is appended to the evidence log if the record is written, in the same atomic step."
	ruleNumbers  = "The store numbers the entries without gaps, from 0, in an order that is the same for everybody and for ever. Entries of one identity are numbered in the order of their writes."
	ruleRead     = "ReadEvidence returns up to limit entries from the number on, in their order. Whatever Apply and AppendEvidence acknowledged before it was called is numbered by then."
	ruleErase    = "EraseEvidence deletes the openings of the entries from a number to before another. A leaf never changes and is never deleted."
)

var evidenceCases = []testCase{
	{"evidence is written with its record, and only if that is written", ruleEvidence, func(t *testing.T, env Env) {
		clause.Proves(t, "G-EVIDENCE")
		s := env.Store
		id := key("k")
		a, b, c, d := entry(id, "first claim"), entry(id, "second claim"), entry(id, "completion"), entry(id, "nothing")
		v1 := putWith(t, s, claimed(id, 1), store.Revision{}, a, b)
		sameEntries(t, read(t, s, 0), a, b)
		v2 := putWith(t, s, next(v1, func(r *semel.Record) { r.Attempt = 2 }), v1.Revision, c)
		sameEntries(t, read(t, s, 0), a, b, c)
		for what, w := range map[string]store.Write{
			"over an older revision":   {Record: new(next(v2, func(*semel.Record) {})), Expect: v1.Revision, Evidence: []store.Entry{d}},
			"over a foreign revision":  {Record: new(next(v2, func(*semel.Record) {})), Expect: fresh(), Evidence: []store.Entry{d}},
			"of a record that exists":  {Record: new(claimed(id, 2)), Evidence: []store.Entry{d}},
			"that was applied before":  {Record: new(v2), Expect: v1.Revision, Evidence: []store.Entry{c}},
			"that was overtaken since": {Record: new(v1), Evidence: []store.Entry{a, b}},
		} {
			refused(t, s, w, v2)
			if err := differEntries(read(t, s, 0), []store.Entry{a, b, c}); err != nil {
				t.Fatalf("after a write %s: %v", what, err)
			}
		}
		refused(t, s, store.Write{Record: new(claimed(key("absent"), 1)), Expect: fresh(), Evidence: []store.Entry{d}}, semel.Record{})
		putWith(t, s, next(v2, func(*semel.Record) {}), v2.Revision)
		sameEntries(t, read(t, s, 0), a, b, c)
	}},
	{"of concurrent writes over one version only the one that wins appends its evidence", ruleEvidence, func(t *testing.T, env Env) {
		id := key("contended")
		want := []store.Entry{entry(id, "0")}
		cur := putWith(t, env.Store, claimed(id, 1), store.Revision{}, want...)
		for round := range 50 {
			writes := make([]store.Write, 8)
			for i := range writes {
				writes[i] = store.Write{
					Record: new(next(cur, func(r *semel.Record) { r.Attempt++ })), Expect: cur.Revision,
					Evidence: []store.Entry{entry(id, fmt.Sprint(round, " of ", i))},
				}
			}
			won := race(t, env.Store, writes)
			cur, want = *won.Record, append(want, won.Evidence...)
		}
		sameEntries(t, read(t, env.Store, 0), want...)
	}},
	{"entries of one identity are in the order of their writes, and none is lost, whoever else writes", ruleNumbers, func(t *testing.T, env Env) {
		const identities, versions = 16, 40
		var wg sync.WaitGroup
		for i := range identities {
			wg.Go(func() {
				id := key(strconv.Itoa(i))
				prev := semel.Record{ID: id}
				for v := range versions {
					rec := claimed(id, int64(v))
					_, applied, err := env.Store.Apply(t.Context(), store.Write{Record: new(rec), Expect: prev.Revision, Evidence: []store.Entry{entry(id, strconv.Itoa(v))}})
					if err != nil || !applied {
						t.Errorf("Apply: applied %v, error %v", applied, err)
						return
					}
					prev = rec
				}
			})
			wg.Go(func() {
				for v := range versions {
					en := store.Entry{Leaf: []byte("a replay"), Opening: []byte(strconv.Itoa(v))}
					if err := evidenceOf(env.Store).AppendEvidence(t.Context(), []store.Entry{en, en}); err != nil {
						t.Errorf("AppendEvidence: %v", err)
					}
				}
			})
		}
		wg.Wait()
		seen := map[store.Subject]int{}
		for _, en := range read(t, env.Store, 0) {
			if want := "leaf of " + strconv.Itoa(seen[en.Subject]); en.Subject != (store.Subject{}) && string(en.Leaf) != want {
				t.Fatalf("an identity has %q in the place of %q", en.Leaf, want)
			}
			seen[en.Subject]++
		}
		if n := seen[store.Subject{}]; n != 2*identities*versions {
			t.Errorf("%d of %d entries without a record are there", n, 2*identities*versions)
		}
		for i := range identities {
			if n := seen[subject(key(strconv.Itoa(i)))]; n != versions {
				t.Errorf("%d of %d entries of an identity are there", n, versions)
			}
		}
	}},
	{"whoever reads sees all entries that were acknowledged before", ruleRead, func(t *testing.T, env Env) {
		const callers, each = 8, 25
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				from := uint64(0)
				for i := range each {
					text := fmt.Sprint(c, " number ", i)
					mine := entry(key(text), text)
					var err error
					if i%2 == 0 {
						_, _, err = env.Store.Apply(t.Context(), store.Write{Record: new(claimed(key(text), 1)), Evidence: []store.Entry{mine}})
					} else {
						err = evidenceOf(env.Store).AppendEvidence(t.Context(), []store.Entry{mine})
					}
					if err != nil {
						t.Errorf("a write with evidence: %v", err)
						return
					}
					// A reader that continues from a number must not miss it.
					list, err := readAll(t.Context(), env.Store, from)
					if err != nil {
						t.Error(err)
						return
					}
					from += uint64(len(list))
					found := 0
					for _, en := range list {
						if equalEntries(en, mine) {
							found++
						}
					}
					if found != 1 {
						t.Errorf("an entry that was acknowledged is there %d times among those that are new since the last look", found)
						return
					}
				}
			})
		}
		wg.Wait()
		if n := len(read(t, env.Store, 0)); n != callers*each {
			t.Errorf("there are %d entries, not %d", n, callers*each)
		}
	}},
	{"the log is the same for everybody and for ever", ruleNumbers, func(t *testing.T, env Env) {
		prev := logged(t, env.Store, 300)
		before := read(t, env.Store, 0)
		if len(before) != 300 {
			t.Fatalf("there are %d entries, not 300", len(before))
		}
		check := func() {
			t.Helper()
			for _, from := range []uint64{0, 1, 7, 150, 298, 299, 300, 301, 1 << 62} {
				list, err := evidenceOf(env.Store).ReadEvidence(t.Context(), from, 40)
				if err != nil {
					t.Fatalf("ReadEvidence: %v", err)
				}
				from = min(from, uint64(len(before)))
				sameEntries(t, list, before[from:min(int(from)+40, len(before))]...)
			}
			if list, err := evidenceOf(env.Store).ReadEvidence(t.Context(), 0, 0); err != nil || len(list) != 0 {
				t.Fatalf("with a limit of zero ReadEvidence gives %d entries, error %v", len(list), err)
			}
		}
		check()
		env.reopen()
		check()
		later := entry(prev.ID, "later")
		putWith(t, env.Store, next(prev, func(*semel.Record) {}), prev.Revision, later)
		before = append(before, later)
		sameEntries(t, read(t, env.Store, 0), before...)
	}},
	{"entries come back as they were written, whatever they hold", ruleExact, func(t *testing.T, env Env) {
		var want []store.Entry
		for _, size := range []int{0, 1, 127, 128, 300, 16 << 10, 200 << 10} {
			leaf := bytes.Repeat([]byte{0xff, 0, '\n', byte(size)}, size/4+1)
			want = append(want,
				store.Entry{Leaf: leaf, Opening: leaf, Subject: store.Subject{byte(len(want)), 0xff}},
				store.Entry{Leaf: leaf[:1], Opening: leaf, Subject: store.Subject{1}},
				store.Entry{Leaf: leaf},
			)
		}
		appended(t, env.Store, want)
		putWith(t, env.Store, claimed(key("k"), 1), store.Revision{}, want...)
		want = append(want, want...)
		sameEntries(t, read(t, env.Store, 0), want...)
		appended(t, env.Store, nil)
		env.reopen()
		sameEntries(t, read(t, env.Store, 0), want...)
	}},
	{"entries are found by all of their subjects", "An entry is found by what it has in Also as by its Subject, in one order, and once.", func(t *testing.T, env Env) {
		a, b, both := entry(key("a"), "a"), entry(key("b"), "b"), entry(key("c"), "c")
		name := subject(key("a name"))
		a.Also, both.Also = []store.Subject{name}, []store.Subject{name, subject(key("a")), subject(key("c"))}
		rec := claimed(key("k"), 1)
		putWith(t, env.Store, rec, store.Revision{}, a, b)
		appended(t, env.Store, []store.Entry{both, b})
		for range 2 {
			read(t, env.Store, 0)
			finds(t, env.Store, name, 0, 10, []uint64{0, 2})
			finds(t, env.Store, name, 1, 10, []uint64{2})
			finds(t, env.Store, name, 0, 1, []uint64{0})
			finds(t, env.Store, subject(key("a")), 0, 10, []uint64{0, 2})
			finds(t, env.Store, subject(key("b")), 0, 10, []uint64{1, 3})
			finds(t, env.Store, subject(key("c")), 0, 10, []uint64{2})
			env.reopen()
		}
	}},
	{"entries are found by their subject",
		"FindEvidence returns the numbers of up to limit entries of a subject, from the number on, rising. It knows what an earlier ReadEvidence could see.",
		func(t *testing.T, env Env) {
			logged(t, env.Store, 200)
			check := func() {
				t.Helper()
				want := map[store.Subject][]uint64{}
				for i, en := range read(t, env.Store, 0) {
					want[en.Subject] = append(want[en.Subject], uint64(i))
				}
				for s, numbers := range want {
					if s == (store.Subject{}) {
						continue
					}
					finds(t, env.Store, s, 0, 1000, numbers)
					finds(t, env.Store, s, 0, 0, nil)
					finds(t, env.Store, s, numbers[len(numbers)-1]+1, 10, nil)
					mid := len(numbers) / 2
					finds(t, env.Store, s, numbers[mid], 2, numbers[mid:min(mid+2, len(numbers))])
				}
				finds(t, env.Store, store.Subject{}, 0, 10, nil)
				finds(t, env.Store, store.Subject{0xff, 0xff}, 0, 10, nil)
			}
			check()
			env.reopen()
			check()
		}},
	{"EraseEvidence deletes openings and nothing else", ruleErase, func(t *testing.T, env Env) {
		prev := logged(t, env.Store, 120)
		appended(t, env.Store, bulk(80))
		want := read(t, env.Store, 0)
		for _, r := range [][2]uint64{{3, 3}, {5, 4}, {3, 7}, {0, 1}, {130, 140}, {100, 135}, {150, 151}, {150, 1 << 60}, {300, 400}} {
			if err := evidenceOf(env.Store).EraseEvidence(t.Context(), r[0], r[1]); err != nil {
				t.Fatalf("EraseEvidence: %v", err)
			}
			for i := r[0]; i < min(r[1], uint64(len(want))); i++ {
				want[i].Opening = nil
			}
			if err := differEntries(read(t, env.Store, 0), want); err != nil {
				t.Fatalf("after entries %d to %d were erased: %v", r[0], r[1], err)
			}
		}
		// Entries written later keep their openings.
		later := entry(prev.ID, "later")
		putWith(t, env.Store, next(prev, func(*semel.Record) {}), prev.Revision, later)
		want = append(want, later)
		sameEntries(t, read(t, env.Store, 0), want...)
		env.reopen()
		sameEntries(t, read(t, env.Store, 0), want...)
		finds(t, env.Store, bulk(1)[0].Subject, 0, 1, []uint64{120})
	}},
	{"concurrent erasures each delete what they were told", ruleErase, func(t *testing.T, env Env) {
		appended(t, env.Store, bulk(64))
		want := read(t, env.Store, 0)
		var wg sync.WaitGroup
		for i := uint64(0); i < 64; i += 2 {
			want[i].Opening = nil
			wg.Go(func() {
				if err := evidenceOf(env.Store).EraseEvidence(t.Context(), i, i+1); err != nil {
					t.Errorf("EraseEvidence: %v", err)
				}
			})
		}
		wg.Wait()
		sameEntries(t, read(t, env.Store, 0), want...)
	}},
	{"tiles are kept by their names",
		"PutEvidenceTiles keeps parts of the Merkle tree over the leaves by name. A tile is written again only with the same content. EvidenceTile returns a tile, or ErrNotFound.",
		func(t *testing.T, env Env) {
			ev := evidenceOf(env.Store)
			tiles := map[string][]byte{}
			for i := range 20 {
				tiles[fmt.Sprintf("tile/8/0/%03d", i)] = bytes.Repeat([]byte{byte(i), 0xff}, 32*i+1)
			}
			tiles["tile/8/0/x001/000"], tiles["tile/8/1"] = []byte("deep"), []byte("short")
			if _, err := ev.EvidenceTile(t.Context(), "tile/8/0/000"); !errors.Is(err, semel.ErrNotFound) {
				t.Fatalf("EvidenceTile of a tile that is not there gives %v", err)
			}
			for _, again := range []map[string][]byte{tiles, {"tile/8/0/001": tiles["tile/8/0/001"]}, {}} {
				if err := ev.PutEvidenceTiles(t.Context(), again); err != nil {
					t.Fatalf("PutEvidenceTiles: %v", err)
				}
			}
			logged(t, env.Store, 10)
			env.reopen()
			ev = evidenceOf(env.Store)
			for name, want := range tiles {
				if got, err := ev.EvidenceTile(t.Context(), name); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("the tile %s has %d bytes in the place of %d, error %v", name, len(got), len(want), err)
				}
			}
			for _, name := range []string{"", "tile", "tile/8/", "tile/8/0/0001"} {
				if _, err := ev.EvidenceTile(t.Context(), name); !errors.Is(err, semel.ErrNotFound) {
					t.Fatalf("EvidenceTile of %q, which is not there, gives %v", name, err)
				}
			}
		}},
}
