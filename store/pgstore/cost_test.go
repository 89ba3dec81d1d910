package pgstore

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// What a new call with an answer of 1 KiB costs, whose caller is alone, by the server's own
// figures: its claim and its outcome are a statement, a round trip and a sync each, and nothing
// else is asked. docs/postgresql.md says what the bytes of the log are.
func TestWhatACallCosts(t *testing.T) {
	server := pgtest.Start(t, &pgtest.Options{Settings: map[string]string{
		"shared_preload_libraries": "pg_stat_statements",
		// Nobody else writes or syncs meanwhile, and no page is written whole.
		"wal_level": "minimal", "max_wal_senders": "0", "autovacuum": "off", "checkpoint_timeout": "1h", "full_page_writes": "off",
	}})
	server.Exec(t, "postgres", "CREATE EXTENSION pg_stat_statements")
	database := server.Database(t)
	mustClose(t, mustOpen(t, server.URL(database), &Options{Migrate: true, noNotices: true}))
	// A session tells its figures at its end at the latest. So two stores make a few calls and
	// many, and what opening one costs falls out of the difference.
	few := costOf(t, server, database, 50)
	many := costOf(t, server, database, 250)
	const calls = 250 - 50
	each := func(what func(c costs) float64) float64 { return (what(many) - what(few)) / calls }
	syncs, log, records := each(func(c costs) float64 { return c.syncs }), each(func(c costs) float64 { return c.log }), each(func(c costs) float64 { return c.records })
	garbage := each(func(c costs) float64 { return c.garbage })
	t.Logf("a call has %.2f syncs and %.0f bytes in %.1f records of the log, and leaves %.0f bytes of garbage", syncs, log, records, garbage)
	if syncs < 1.9 || syncs > 2.1 { // the note of the clock may be one
		t.Errorf("a call has %.2f syncs, want 2", syncs)
	}
	if log > 3_300 {
		t.Errorf("a call has %.0f bytes of the log", log)
	}
	if garbage > 8_500 {
		t.Errorf("a call leaves %.0f bytes of garbage", garbage)
	}
	rows, err := server.Conn(t, "postgres").Query(t.Context(), "SELECT query, calls FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"+
		" WHERE d.datname = $1 AND calls >= 50", database)
	noError(t, err)
	sent := map[string]int{}
	for rows.Next() {
		var sql string
		var n int
		noError(t, rows.Scan(&sql, &n))
		sent[strings.Fields(sql)[0]] = n
	}
	if noError(t, rows.Err()); fmt.Sprint(sent) != "map[INSERT:300 UPDATE:300]" {
		t.Errorf("for 300 calls the store sent %v", sent)
	}
}

// A duplicate of a stored call costs two exchanges, one that finds the key taken and one that
// reads the record. Further ones cost one, until a call is new.
func TestWhatADuplicateCosts(t *testing.T) {
	server := pgtest.Shared(t)
	w := newWire(t, server)
	s := mustOpen(t, w.url(server.Database(t)), &Options{Migrate: true, noNotices: true, MaxConns: 1})
	t.Cleanup(func() { mustClose(t, s) })
	var writes, looks atomic.Int64
	w.set(func(x *exchange) {
		if x.writes() {
			writes.Add(1)
		} else if x.looks() {
			looks.Add(1)
		}
	})
	since := func() (int, int) { return int(writes.Swap(0)), int(looks.Swap(0)) }
	first := numbered("first", 1)
	first.Result.Data = []byte("its answer")
	for i, c := range []struct {
		key           string
		applied       bool
		writes, looks int
	}{
		{"first", true, 1, 0}, {"first", false, 1, 1}, {"first", false, 1, 0}, {"first", false, 1, 0},
		{"second", true, 1, 0}, {"first", false, 1, 1}, {"third", true, 1, 0},
	} {
		rec := first
		rec.ID.Key, rec.Revision = c.key, store.Revision{byte(i) + 1, 7}
		since()
		current, applied, err := s.Apply(t.Context(), store.Write{Record: &rec})
		if err != nil || applied != c.applied || string(current.Result.Data) != "its answer" || !applied && current.Revision != first.Revision {
			t.Errorf("delivery %d: applied %v, %v, to %+v", i, applied, err, current)
		}
		if writes, looks := since(); writes != c.writes || looks != c.looks {
			t.Errorf("delivery %d took %d statements and %d looks, want %d and %d", i, writes, looks, c.writes, c.looks)
		}
	}
	s.meets.Store(true)
	var batch []*op
	for _, key := range []string{"first", "fourth", "second", "fifth"} {
		o, err := s.newOp(store.Write{Record: new(numbered(key, 20))})
		noError(t, err)
		batch = append(batch, o)
	}
	since()
	s.writeBatch(t.Context(), batch)
	for _, o := range batch {
		key := o.write.Record.ID.Key
		if o.err != nil || o.applied != (key == "fourth" || key == "fifth") || o.current.ID.Key != key {
			t.Errorf("%s in a batch: applied %v, %v, %+v", key, o.applied, o.err, o.current)
		}
	}
	if writes, looks := since(); writes != 1 || looks != 0 {
		t.Errorf("a batch with duplicates took %d statements and %d looks", writes, looks)
	}
}

type costs struct{ syncs, log, records, garbage float64 }

// costOf makes calls on a store that it opens and closes.
func costOf(t *testing.T, server *pgtest.Server, database string, calls int) costs {
	t.Helper()
	conn := server.Conn(t, "postgres")
	total := func() (c costs) { // when no store has a session
		for others := 1; others > 0; {
			noError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = $1", database).Scan(&others))
		}
		noError(t, conn.QueryRow(t.Context(), "SELECT wal_sync, wal_bytes, wal_records FROM pg_stat_wal").Scan(&c.syncs, &c.log, &c.records))
		return c
	}
	from := total()
	s := mustOpen(t, server.URL(database), &Options{noNotices: true})
	engine, err := semel.New(s, &semel.Options{Operations: []semel.Operation{{Name: "payments.charge"}}})
	noError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for n := range calls {
		key := fmt.Sprintf("key-%d-%d", calls, n)
		ans, err := engine.Begin(t.Context(), semel.Call{
			Tenant: "tenant", Principal: "principal", Operation: "payments.charge", Key: key, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(key)),
		})
		noError(t, err)
		noError(t, ans.Attempt.Complete(t.Context(), semel.Result{Data: benchResult}))
	}
	runtime.ReadMemStats(&after)
	noError(t, engine.Close(t.Context()))
	mustClose(t, s)
	to := total()
	return costs{to.syncs - from.syncs, to.log - from.log, to.records - from.records, float64(after.TotalAlloc - before.TotalAlloc)}
}
