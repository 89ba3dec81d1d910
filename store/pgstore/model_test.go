package pgstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store"
)

// lie is a way in which an answer to writes fails, or is not what the server has said.
type lie struct {
	name string
	tell func(r *rand.Rand, x *exchange) bool // reports whether it could
}

// certain and vague are codes of errors by which nothing was written, and by which
// something may have been.
var (
	certain = []string{"40001", "40P01", "55P03", "22021", "23514", "53100", "53200", "25006", "57014", "XX001", "42P01"}
	vague   = []string{"53100", "58030", "XX000", "08006", "40003", "57014"}
)

var lies = []lie{
	{"a row is lost", dataRows(func(r *rand.Rand, reply [][]byte, rows []int) [][]byte {
		return slices.Delete(reply, rows[0], rows[0]+1)
	})},
	{"a row comes twice", dataRows(func(r *rand.Rand, reply [][]byte, rows []int) [][]byte {
		return slices.Insert(reply, rows[0], reply[rows[0]])
	})},
	{"a row comes twice and is counted", dataRows(func(r *rand.Rand, reply [][]byte, rows []int) [][]byte {
		return slices.Insert(recounted(reply, rows[0], 1), rows[0], reply[rows[0]])
	})},
	// Of a single write nothing else speaks, so nobody could notice.
	{"a row of several writes is lost and not counted", func(r *rand.Rand, x *exchange) bool {
		return x.writes() && dataRows(func(r *rand.Rand, reply [][]byte, rows []int) [][]byte {
			for _, i := range rows {
				if reply[i-1][0] == 'D' || reply[i+1][0] == 'D' {
					return slices.Delete(recounted(reply, i, -1), i, i+1)
				}
			}
			return reply
		})(r, x)
	}},
	{"rows come in another order", dataRows(func(r *rand.Rand, reply [][]byte, rows []int) [][]byte {
		if len(rows) > 1 {
			reply[rows[0]], reply[rows[1]] = reply[rows[1]], reply[rows[0]]
		}
		return reply
	})},
	{"another number of rows is told", func(r *rand.Rand, x *exchange) bool {
		by := 1 - 2*r.IntN(2)
		x.after = func(reply [][]byte) [][]byte { return recounted(slices.Clone(reply), 0, by) }
		return true
	}},
	{"the answer to another write comes", func(r *rand.Rand, x *exchange) bool {
		if previous := x.previous; previous != nil && x.writes() {
			x.after = func([][]byte) [][]byte { return previous }
			return true
		}
		return false
	}},
	{"the answer breaks off", func(r *rand.Rand, x *exchange) bool {
		n := r.IntN(4)
		x.cut = true
		x.after = func(reply [][]byte) [][]byte { return reply[:min(n, len(reply)-1)] }
		return true
	}},
	{"the session ends before the commit", func(r *rand.Rand, x *exchange) bool {
		x.cut, x.instead = true, [][]byte{encoded(ending("57P01"))}
		return true
	}},
	{"the session ends behind the commit", func(r *rand.Rand, x *exchange) bool {
		x.cut = true
		code := []string{"57P01", "53200", "XX000", "25P03"}[r.IntN(4)]
		x.after = func([][]byte) [][]byte { return [][]byte{encoded(ending(code))} }
		return true
	}},
	{"the statement is refused", func(r *rand.Rand, x *exchange) bool {
		x.instead = refusal(certain[r.IntN(len(certain))])
		return true
	}},
	{"the commit fails, or does not", func(r *rand.Rand, x *exchange) bool {
		code := vague[r.IntN(len(vague))]
		x.after = func(reply [][]byte) [][]byte { return slices.Concat(reply[:len(reply)-1], refusal(code)) }
		return true
	}},
	{"no answer comes", func(r *rand.Rand, x *exchange) bool {
		x.hang = true
		return r.IntN(5) == 0
	}},
}

// dataRows changes a reply with rows, given in an order by chance.
func dataRows(change func(r *rand.Rand, reply [][]byte, rows []int) [][]byte) func(r *rand.Rand, x *exchange) bool {
	return func(r *rand.Rand, x *exchange) bool {
		seed := r.Uint64()
		x.after = func(reply [][]byte) [][]byte {
			var rows []int
			for i, msg := range reply {
				if msg[0] == 'D' {
					rows = append(rows, i)
				}
			}
			if len(rows) == 0 {
				return reply
			}
			r := rand.New(rand.NewPCG(seed, 1))
			r.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
			return change(r, slices.Clone(reply), rows)
		}
		return true
	}
}

// recounted has the first tag behind a message tell another number of rows.
func recounted(reply [][]byte, from, by int) [][]byte {
	for i := from; i < len(reply); i++ {
		if reply[i][0] != 'C' {
			continue
		}
		tag := strings.TrimRight(string(reply[i][5:]), "\x00")
		verb, number, _ := cutLast(tag, " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return reply
		}
		reply[i] = encoded(&pgproto3.CommandComplete{CommandTag: fmt.Appendf(nil, "%s %d", verb, max(n+by, 0))})
		return reply
	}
	return reply
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// told is what a caller was told of a write.
type told struct {
	write   store.Write
	current *semel.Record
	applied bool
	err     error
}

// TestAnswers has callers write records through a wire that lies about it, and holds
// what they were told against what the server has committed.
func TestAnswers(t *testing.T) {
	const callers, keys = 24, 8
	seed := thorough.Seed()
	t.Logf("seed %d", seed)
	server := pgtest.Shared(t)
	database := server.Database(t)
	w := newWire(t, server)
	s := mustOpen(t, w.url(database), &Options{
		Migrate: true, noNotices: true, MaxConns: 3, AcquireTimeout: 20 * time.Second,
		answer: 100 * time.Millisecond, // what hangs is given up soon
	})
	t.Cleanup(func() { mustClose(t, s) })
	server.Exec(t, database, `CREATE TABLE committed (id bytea, revision bytea, follows bytea);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO committed VALUES (NEW.id, NEW.revision, CASE WHEN TG_OP = 'UPDATE' THEN OLD.revision END); RETURN NEW; END $$;
		CREATE TRIGGER note AFTER INSERT OR UPDATE ON semel.semel_records FOR EACH ROW EXECUTE FUNCTION note()`)
	var mu sync.Mutex // of chance, which the wire uses too
	chance := rand.New(rand.NewPCG(seed, 0))
	fired := map[string]int{}
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return !slices.ContainsFunc(lies, func(l lie) bool { return fired[l.name] < 5 })
	}
	w.set(func(x *exchange) {
		if !x.writes() && !x.looks() {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if l := lies[chance.IntN(len(lies))]; chance.IntN(3) == 0 && l.tell(chance, x) {
			fired[l.name]++
		} else {
			*x = exchange{conn: x.conn, sql: x.sql, request: x.request}
		}
	})
	past := store.InstantOf(time.Now()).Add(-time.Hour)
	var history []told
	var numbers atomic.Uint64
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(c+1)))
			known := map[string]store.Revision{}
			for n := 0; n < 100 || n < 10_000 && !enough(); n++ {
				rec := numbered(fmt.Sprint("k", r.IntN(keys)), 0)
				binary.BigEndian.PutUint64(rec.Revision[:], numbers.Add(1))
				rec.Result.Data = fmt.Append(nil, "result ", rec.Revision)
				wr := store.Write{Record: new(rec), Expect: known[rec.ID.Key]}
				if r.IntN(4) == 0 {
					wr.Expect = store.Revision{} // a duplicate
				}
				if r.IntN(4) == 0 {
					wr.Evidence = leaves(rec.Revision.String())
				}
				switch r.IntN(8) {
				case 0:
					wr.Deadline = past
				case 1:
					wr.Deadline = past.Add(2 * time.Hour)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(200))*time.Millisecond)
				cur, applied, err := s.Apply(ctx, wr)
				cancel()
				if err == nil {
					known[rec.ID.Key] = cur.Revision
				}
				mu.Lock()
				history = append(history, told{wr, cur, applied, err})
				mu.Unlock()
			}
		})
	}
	all.Wait()
	w.set(nil)
	w.cutAll(nil) // so that whatever hangs ends
	await(t, "all writes have ended", func() bool { return idle(s) })
	follows := map[store.Revision]store.Revision{}
	// In one snapshot: a session that was cut off may still commit.
	snapshot, err := server.Conn(t, database).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	noError(t, err)
	rows, err := snapshot.Query(t.Context(), "SELECT revision, follows FROM committed")
	noError(t, err)
	for rows.Next() {
		var revision, before []byte
		noError(t, rows.Scan(&revision, &before))
		if _, twice := follows[store.Revision(revision)]; twice {
			t.Errorf("%x was written twice", revision)
		}
		follows[store.Revision(revision)] = store.Revision(append(before, make([]byte, 16)...))
	}
	noError(t, rows.Err())
	noted := map[string]int{}
	rows, err = snapshot.Query(t.Context(), "SELECT convert_from(leaf, 'UTF8') FROM semel.semel_evidence_new")
	noError(t, err)
	for rows.Next() {
		var leaf string
		noError(t, rows.Scan(&leaf))
		noted[leaf]++
	}
	noError(t, rows.Err())
	counts := map[string]int{}
	for _, h := range history {
		own := h.write.Record.Revision
		before, committed := follows[own]
		if n := noted[own.String()]; n > 1 || (n == 1) != (committed && h.write.Evidence != nil) {
			t.Errorf("%d entries of a write, which was committed: %v", n, committed)
		}
		_, stood := follows[revisionOf(h.current)]
		switch {
		case committed && before != h.write.Expect:
			t.Errorf("%v follows %v and expects %v", own, before, h.write.Expect)
		case committed && h.write.Deadline == past:
			t.Errorf("a write was committed after its deadline")
		case errors.Is(h.err, store.ErrTooLate):
			counts["late"]++
			if committed || h.write.Deadline != past {
				t.Errorf("a write is told to be late: %v", h.err)
			}
		case h.err == nil && h.applied:
			counts["applied"]++
			if !committed || revisionOf(h.current) != own {
				t.Errorf("a write is told to be applied and is not")
			}
		case h.err == nil && revisionOf(h.current) == own:
			counts["found"]++
			if !committed {
				t.Errorf("a write is told to be there and is not")
			}
		case h.err == nil:
			counts["refused"]++
			if committed || !stood { // nothing is ever deleted
				t.Errorf("a write is told to be refused by %v: it was committed: %v", revisionOf(h.current), committed)
			} else if h.current.ID != h.write.Record.ID || string(h.current.Result.Data) != fmt.Sprint("result ", revisionOf(h.current)) {
				t.Errorf("a write of %s was refused by the record of %s with the %q", h.write.Record.ID.Key, h.current.ID.Key, h.current.Result.Data)
			}
		case errors.Is(h.err, store.ErrNotApplied):
			counts["not applied"]++
			if committed {
				t.Errorf("a write was committed and is told not to be applied: %v", h.err)
			}
		default:
			counts["unknown"]++
			if committed {
				counts["unknown and committed"]++
			}
		}
	}
	t.Logf("fired: %v; told: %v", fired, counts)
	for _, l := range lies {
		if fired[l.name] == 0 {
			t.Errorf("it never happened that %s", l.name)
		}
	}
	for _, what := range []string{"applied", "refused", "late", "not applied", "unknown", "unknown and committed"} {
		if counts[what] == 0 {
			t.Errorf("no write was %s, so little is proved: %v", what, slices.Sorted(maps.Keys(counts)))
		}
	}
	await(t, "whoever comes now is served, once the connections that were cut are gone", func() bool {
		cur, _, err := s.Apply(t.Context(), store.Write{Record: new(numbered("afterwards", 1))})
		return err == nil && cur.Revision == numbered("", 1).Revision
	})
}

// revisionOf is zero if there is no record.
func revisionOf(rec *semel.Record) (none store.Revision) {
	if rec == nil {
		return none
	}
	return rec.Revision
}
