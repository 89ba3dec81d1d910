package dashboard

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// TestPagesOfEntries: a record may have any number of entries, and a page has the newest of
// those before a number, each with its proof.
func TestPagesOfEntries(t *testing.T) {
	ctx := context.Background()
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	st := memstore.New()
	log, err := evidence.New(st, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	subject, other := store.Subject{1}, store.Subject{2}
	add := func(n int, s store.Subject) {
		var entries []store.Entry
		for range n {
			entries = append(entries, store.Entry{Leaf: fmt.Appendf(nil, `{"v":1,"artifact_id":"%d"}`, n), Subject: s})
		}
		if err := st.AppendEvidence(ctx, entries); err != nil {
			t.Fatal(err)
		}
	}
	add(70, subject)
	add(10, other)
	add(60, subject)
	if err := log.Integrate(ctx); err != nil {
		t.Fatal(err)
	}
	add(5, subject) // not signed yet
	reader, err := log.Reader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, at := reader.Checkpoint()
	for _, all := range []bool{false, true} {
		want := []int{50, 50, 35}
		if all {
			want = []int{50, 50, 40}
		}
		before, last := uint64(1<<63), uint64(1<<63)
		for i, n := range want {
			var list entryList
			if err := list.fill(ctx, reader, subject, all, before); err != nil {
				t.Fatal(err)
			}
			if len(list.Entries) != n || (list.Next == 0) != (i == len(want)-1) || list.Size != 140 {
				t.Fatalf("page %d has %d entries, and %d follows", i, len(list.Entries), list.Next)
			}
			for _, e := range list.Entries {
				if e.N >= last {
					t.Fatalf("entry %d follows %d", e.N, last)
				}
				if last = e.N; (e.Proof != nil) != (e.N < at.Size) {
					t.Errorf("entry %d has the proof %v", e.N, e.Proof)
				}
				if e.Proof == nil {
					continue
				}
				var proof tlog.RecordProof
				for _, text := range e.Proof {
					hash, err := tlog.ParseHash(text)
					if err != nil {
						t.Fatal(err)
					}
					proof = append(proof, hash)
				}
				if err := tlog.CheckRecord(proof, int64(at.Size), at.Root, int64(e.N), tlog.RecordHash(e.Raw)); err != nil {
					t.Errorf("entry %d: %v", e.N, err)
				}
			}
			before = list.Next
		}
	}
}
