package pgstore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// rewritten is a reply whose rows were changed, and whose tags tell as many as there
// are then.
func rewritten(reply [][]byte, change func(row [][]byte) [][][]byte) (changed [][]byte) {
	n := 0
	for _, msg := range reply {
		switch msg[0] {
		case 'D':
			var row pgproto3.DataRow
			if err := row.Decode(msg[5:]); err != nil {
				panic(err)
			}
			for _, values := range change(row.Values) {
				changed = append(changed, encoded(&pgproto3.DataRow{Values: values}))
				n++
			}
			continue
		case 'C':
			verb, _, _ := cutLast(string(bytes.TrimRight(msg[5:], "\x00")), " ")
			msg, n = encoded(&pgproto3.CommandComplete{CommandTag: fmt.Appendf(nil, "%s %d", verb, n)}), 0
		}
		changed = append(changed, msg)
	}
	return changed
}

// namesOne reports whether a row says of a write that it was made.
func namesOne(row [][]byte) bool { return len(row) == 2 && len(row[0]) == 32 }

// TestAnswersThatContradictThemselves has replies that are whole as far as the protocol
// goes, and do not fit together, or not the writes.
func TestAnswersThatContradictThemselves(t *testing.T) {
	same := func(row [][]byte) [][][]byte { return [][][]byte{row} }
	first := func(is func(row [][]byte) bool, change func(row [][]byte) [][][]byte) func(row [][]byte) [][][]byte {
		done := false
		return func(row [][]byte) [][][]byte {
			if done || !is(row) {
				return same(row)
			}
			done = true
			return change(row)
		}
	}
	with := func(i int, value func(old []byte) []byte) func(row [][]byte) [][][]byte {
		return func(row [][]byte) [][][]byte {
			row = slices.Clone(row)
			row[i] = value(row[i])
			return same(row)
		}
	}
	server := pgtest.Shared(t)
	w := newWire(t, server)
	s := mustOpen(t, w.url(server.Database(t)), &Options{Migrate: true, noNotices: true, MaxConns: 1, AcquireTimeout: 10 * time.Second})
	t.Cleanup(func() { mustClose(t, s) })
	other := func(old []byte) []byte { return append([]byte{old[0] + 1}, old[1:]...) }
	for name, change := range map[string]func() func(row [][]byte) [][][]byte{
		"one is named twice": func() func([][]byte) [][][]byte {
			return first(namesOne, func(row [][]byte) [][][]byte { return [][][]byte{row, row} })
		},
		"one is named that nobody has sent":     func() func([][]byte) [][][]byte { return first(namesOne, with(0, other)) },
		"one is named by another of its writes": func() func([][]byte) [][][]byte { return first(namesOne, with(1, other)) },
		"one that is named has no such identity": func() func([][]byte) [][][]byte {
			return first(namesOne, with(0, func(old []byte) []byte { return old[:31] }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var writes []store.Write
			for i := range 4 {
				writes = append(writes, store.Write{Record: new(numbered(fmt.Sprint(name, i), 2))})
			}
			conn := -1
			results := together(t, w, s, func(n int, x *exchange) {
				if n == 0 {
					conn = x.conn
					change := change()
					x.after = func(reply [][]byte) [][]byte { return rewritten(reply, change) }
				}
			}, writes...)
			for _, r := range results {
				if !errors.Is(r.err, errGarbled) || errors.Is(r.err, store.ErrNotApplied) || r.applied {
					t.Errorf("a write got %v, %v", r.applied, r.err)
				}
			}
			again := -1
			w.set(func(x *exchange) {
				if x.writes() {
					again = x.conn
				}
			})
			put(t, s, numbered(name, 1), store.Revision{})
			w.set(nil)
			if again == conn {
				t.Error("the connection is still used")
			}
		})
	}
}

// A write that comes when another of its identity has been sent already is not answered
// by what that has found, which may be older.
func TestAnswersAreNotOlderThanTheWrite(t *testing.T) {
	server := pgtest.Shared(t)
	database := server.Database(t)
	w := newWire(t, server)
	s := mustOpen(t, w.url(database), &Options{Migrate: true, noNotices: true, AcquireTimeout: 10 * time.Second})
	t.Cleanup(func() { mustClose(t, s) })
	other := mustOpen(t, server.URL(database), &Options{noNotices: true})
	t.Cleanup(func() { mustClose(t, other) })
	first := put(t, other, numbered("k", 1), store.Revision{})
	found, pass := make(chan struct{}), make(chan struct{})
	w.set(func(x *exchange) {
		if x.looks() && found != nil {
			reached := found
			found = nil
			x.after = func(reply [][]byte) [][]byte {
				close(reached)
				select {
				case <-pass:
				case <-t.Context().Done():
				}
				return reply
			}
		}
	})
	reached := found
	ended := make(chan told, 2)
	apply := func(revision byte) {
		wr := store.Write{Record: new(numbered("k", revision))}
		cur, applied, err := s.Apply(t.Context(), wr)
		ended <- told{wr, cur, applied, err}
	}
	go apply(2)
	<-reached // the server has answered, by what is stored now
	second := put(t, other, numbered("k", 3), first.Revision)
	go apply(4)
	await(t, "it waits behind the other", func() bool { return queued(s) == 1 })
	close(pass)
	for range 2 {
		r := <-ended
		want := first.Revision
		if r.write.Record.Revision == numbered("", 4).Revision {
			want = second.Revision
		}
		if r.err != nil || r.applied || revisionOf(r.current) != want {
			t.Errorf("the write %v was answered by %v, %v, %v; want %v", r.write.Record.Revision, revisionOf(r.current), r.applied, r.err, want)
		}
	}
}

// An answer that was given before is not that of a later write, however much the two are
// like each other.
func TestAnswersToOtherWrites(t *testing.T) {
	server := pgtest.Shared(t)
	for _, n := range []int{1, 5} {
		for _, creates := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d, new %v", n, creates), func(t *testing.T) {
				database := server.Database(t)
				w := newWire(t, server)
				s := mustOpen(t, w.url(database), &Options{Migrate: true, noNotices: true, MaxConns: 1, AcquireTimeout: 10 * time.Second})
				t.Cleanup(func() { mustClose(t, s) })
				turn := func(revision byte, meddle func(n int, x *exchange)) (results []told) {
					var writes []store.Write
					for i := range n {
						wr := store.Write{Record: new(numbered(fmt.Sprint(i), revision))}
						if !creates {
							wr.Expect = numbered("", revision-1).Revision
						}
						writes = append(writes, wr)
					}
					return together(t, w, s, meddle, writes...)
				}
				for i := range n {
					if !creates {
						put(t, s, numbered(fmt.Sprint(i), 1), store.Revision{})
					}
				}
				var said [][]byte
				for _, r := range turn(2, func(_ int, x *exchange) {
					x.after = func(reply [][]byte) [][]byte { said = slices.Clone(reply); return reply }
				}) {
					if r.err != nil || !r.applied {
						t.Fatalf("a write got %v, %v", r.applied, r.err)
					}
				}
				if creates {
					server.Exec(t, database, "DELETE FROM semel.semel_records")
				}
				for _, r := range turn(3, func(n int, x *exchange) {
					if x.writes() {
						x.instead = said // and the server hears of nothing
					}
				}) {
					if !errors.Is(r.err, errGarbled) || errors.Is(r.err, store.ErrNotApplied) || r.applied {
						t.Errorf("a write got the answer to another: %v, %v", r.applied, r.err)
					}
				}
			})
		}
	}
}

// Rows that stand in the way are about new records. In an answer to a write that changes one,
// such a row is of another answer, however old.
func TestAnswersWithARowInTheWayOfAChange(t *testing.T) {
	server := pgtest.Shared(t)
	w := newWire(t, server)
	s := mustOpen(t, w.url(server.Database(t)), &Options{Migrate: true, noNotices: true, MaxConns: 1, AcquireTimeout: 10 * time.Second})
	t.Cleanup(func() { mustClose(t, s) })
	put(t, s, numbered("a", 1), store.Revision{})
	before := put(t, s, numbered("b", 1), store.Revision{})
	now := put(t, s, numbered("b", 2), before.Revision)
	record, err := appendRecord(nil, &before)
	noError(t, err)
	id := before.ID.Digest()
	replaced := 0
	results := together(t, w, s, func(_ int, x *exchange) {
		if !x.writes() {
			return
		}
		x.after = func(reply [][]byte) [][]byte {
			return rewritten(reply, func(row [][]byte) [][][]byte {
				switch {
				case len(row) == 4 && row[3] != nil:
					row, replaced = [][]byte{id[:], before.Revision[:], before.Result.Data, record}, replaced+1
				case bytes.Equal(row[0], id[:]): // it names the change
					return nil
				}
				return [][][]byte{row}
			})
		}
	}, store.Write{Record: new(numbered("a", 3)), Evidence: leaves("a")}, store.Write{Record: new(numbered("b", 3)), Expect: now.Revision})
	if replaced != 1 {
		t.Fatalf("%d rows stood in the way, so nothing is proved", replaced)
	}
	for _, r := range results {
		if !errors.Is(r.err, errGarbled) || errors.Is(r.err, store.ErrNotApplied) || r.applied {
			t.Errorf("the write of %s got %v, %v, %v", r.write.Record.ID.Key, revisionOf(r.current), r.applied, r.err)
		}
	}
}
