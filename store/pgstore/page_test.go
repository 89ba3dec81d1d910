package pgstore

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
)

// TestUnreadableRows has rows among those that are due, and listed, that can't be read.
func TestUnreadableRows(t *testing.T) {
	s, database := open(t, Options{})
	const rows = 20
	start := testRecord("").NextAt
	digests := map[string]error{}
	want := map[semel.ID]bool{}
	var last store.Instant
	for i := range rows {
		rec := numbered(fmt.Sprint("k", i), byte(i))
		rec.NextAt = start.Add(time.Duration(i/4) * time.Second) // several of one instant
		rec.CreatedAt = start.Add(time.Duration(i/4) * time.Second)
		rec = put(t, s, rec, store.Revision{})
		last = rec.NextAt
		id := rec.ID.Digest()
		name := hex.EncodeToString(id[:])
		exec := func(set string) {
			pgtest.Shared(t).Exec(t, database, fmt.Sprintf("UPDATE semel.semel_records SET %s WHERE id = '\\x%s'", set, name))
		}
		switch {
		case i < 2 || i == rows-1: // the first and the last are among them
			exec("record = set_bit(record, 99, 1 - get_bit(record, 99))")
			digests[name] = codec.ErrCorrupt
		case i%3 == 0:
			exec(fmt.Sprintf("record = '\\x%x'", newerRow(t, &rec)))
			digests[name] = codec.ErrNewer
		default:
			want[rec.ID] = true
		}
	}
	check := func(t *testing.T, read func(after string) (recs []semel.Record, next string, unreadable []error)) {
		t.Helper()
		got, bad := map[semel.ID]bool{}, map[string]bool{}
		for after, pages := "", 0; ; pages++ {
			recs, next, unreadable := read(after)
			for _, rec := range recs {
				if got[rec.ID] || !want[rec.ID] {
					t.Errorf("the record of %s is listed twice, or should not be", rec.ID.Key)
				}
				got[rec.ID] = true
			}
			for _, err := range unreadable {
				named := ""
				for name, cause := range digests {
					if strings.Contains(err.Error(), name) && errors.Is(err, cause) && !bad[name] {
						named = name
					}
				}
				if bad[named] = true; named == "" {
					t.Errorf("none of the rows is named, or one twice, by: %v", err)
				}
			}
			if after = next; after == "" {
				break
			}
			if pages > 4*rows {
				t.Fatal("the pages do not come to an end")
			}
		}
		if len(got) != len(want) || len(bad) != len(digests) {
			t.Errorf("%d of %d records are listed, and %d of %d that can't be read", len(got), len(want), len(bad), len(digests))
		}
	}
	for _, limit := range []int{1, 3, rows, 2 * rows} {
		t.Run(fmt.Sprintf("keep no other from being found, by pages of %d", limit), func(t *testing.T) {
			check(t, func(after string) ([]semel.Record, string, []error) {
				page, err := s.Due(t.Context(), store.DueQuery{Until: last, After: after, Limit: limit})
				noError(t, err)
				return page.Records, page.Next, page.Unreadable
			})
			for _, q := range []store.Query{{}, {Operation: testRecord("").ID.Operation}} {
				check(t, func(after string) ([]semel.Record, string, []error) {
					q.Limit, q.Cursor = limit, after
					page, err := s.Search(t.Context(), q)
					noError(t, err)
					return page.Records, page.Next, page.Unreadable
				})
			}
		})
	}
}

// newerRow is what a later program may write for a record.
func newerRow(t *testing.T, rec *semel.Record) []byte {
	t.Helper()
	b, err := appendRecord(nil, rec)
	noError(t, err)
	end := len(b) - 2*crc32.Size // its own checksum and that of the result
	body := b[:end:end]
	body[0] = codec.Version + 1
	return append(binary.LittleEndian.AppendUint32(body, crc32.Checksum(body, castagnoli)), b[end+crc32.Size:]...)
}

func TestPlacesOfOtherLists(t *testing.T) {
	s, _ := open(t, Options{})
	for i := range 2 {
		put(t, s, numbered(fmt.Sprint(i), 1), store.Revision{})
	}
	due, err := s.Due(t.Context(), store.DueQuery{Until: testRecord("").NextAt, Limit: 1})
	noError(t, err)
	listed, err := s.Search(t.Context(), store.Query{Limit: 1})
	noError(t, err)
	if due.Next == "" || listed.Next == "" {
		t.Fatal("there is no second page, so nothing is proved")
	}
	invalid := &semel.Error{Code: semel.CodeInvalidCall}
	for _, after := range []string{listed.Next, "x", due.Next[:8], "%"} {
		if _, err := s.Due(t.Context(), store.DueQuery{Until: testRecord("").NextAt, After: after, Limit: 1}); !errors.Is(err, invalid) {
			t.Errorf("Due goes on after %q: %v", after, err)
		}
	}
	for _, cursor := range []string{due.Next, "x", listed.Next[:8], "%"} {
		if _, err := s.Search(t.Context(), store.Query{Cursor: cursor, Limit: 1}); !errors.Is(err, invalid) {
			t.Errorf("Search goes on after %q: %v", cursor, err)
		}
	}
}
