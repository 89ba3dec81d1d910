package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/internal/thorough"
	"github.com/semelhq/semel/store/storetest"
)

const day = 24 * time.Hour

func TestContractPartitioned(t *testing.T) {
	thorough.Only(t, "the contract, on partitioned tables")
	t.Parallel()
	storetest.Run(t, storetest.Harness{Name: "pgstore, partitioned", Run: contractEnv(pgtest.Shared(t), nil, &Options{Partition: day, apart: 1})})
}

// partitionedStore is a store with partitions, on a database of its own.
type partitionedStore struct {
	*Store
	t        *testing.T
	database string
	shift    *atomic.Int64
}

func openPartitioned(t *testing.T) *partitionedStore {
	t.Helper()
	p := &partitionedStore{t: t, shift: new(atomic.Int64)}
	p.Store, p.database = open(t, Options{Partition: day, shift: p.shift, NoNotices: true})
	p.tend()
	return p
}

// tend looks after the partitions.
func (p *partitionedStore) tend() {
	p.t.Helper()
	if err := p.tendPartitions(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

func (p *partitionedStore) at(d time.Duration) semel.Instant {
	p.t.Helper()
	now, err := p.Now(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return now.Add(d)
}

// complete writes a claim and its outcome, which expires at some time.
func (p *partitionedStore) complete(key string, expires semel.Instant) semel.Record {
	p.t.Helper()
	claim := put(p.t, p.Store, numbered(key, 1), semel.Revision{})
	return put(p.t, p.Store, completed(claim, expires), claim.Revision)
}

// completed is a record's next version, with a result.
func completed(rec semel.Record, expires semel.Instant) semel.Record {
	rec.Revision[0]++
	rec.State, rec.Disposition, rec.ExpiresAt, rec.NextAt = semel.Completed, semel.DispositionCompleted, expires, expires
	rec.Result.Data = bytes.Repeat([]byte(rec.ID.Key), 500)
	return rec
}

// number is what a query counts.
func (p *partitionedStore) number(query string) (n int) {
	p.t.Helper()
	conn := pgtest.Shared(p.t).Conn(p.t, p.database)
	defer conn.Close(p.t.Context())
	if err := conn.QueryRow(p.t.Context(), query).Scan(&n); err != nil {
		p.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// partitions is how many tables there are, and rows in them, but for the default.
func (p *partitionedStore) partitions() (tables, rows int) {
	return p.number(`SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname ~ '^idempotency_result_[0-9]+$'`),
		p.number("SELECT count(*) FROM semel.idempotency_result") - p.other()
}

func (p *partitionedStore) other() int {
	return p.number("SELECT count(*) FROM semel.idempotency_result_other")
}

// whole checks that every way to read a record gives its result.
func (p *partitionedStore) whole(rec semel.Record) {
	p.t.Helper()
	check := func(how string, got semel.Record, err error) {
		p.t.Helper()
		if err != nil || got.Revision != rec.Revision || !bytes.Equal(got.Result.Data, rec.Result.Data) {
			p.t.Errorf("%s gives %d bytes of result of revision %v, %v", how, len(got.Result.Data), got.Revision, err)
		}
	}
	got, err := p.Get(p.t.Context(), rec.ID)
	check("Get", got, err)
	got, _, err = p.Apply(p.t.Context(), semel.Write{Record: numbered(rec.ID.Key, 99)})
	check("a refused claim", got, err)
	got, _, err = p.Apply(p.t.Context(), semel.Write{Record: numbered(rec.ID.Key, 99), Expect: semel.Revision{77}})
	check("a refused update", got, err)
	due, err := p.Due(p.t.Context(), semel.DueQuery{Until: rec.NextAt, Limit: 1000})
	check("Due", only(due.Records, rec.ID), err)
	for _, q := range []semel.Query{{Key: rec.ID.Key}, {Operation: rec.ID.Operation}} {
		page, err := p.Search(p.t.Context(), q)
		check("Search", only(page.Records, rec.ID), err)
	}
}

func only(recs []semel.Record, id semel.ID) semel.Record {
	for _, rec := range recs {
		if rec.ID == id {
			return rec
		}
	}
	return semel.Record{}
}

func ref(rec semel.Record) []semel.Ref { return []semel.Ref{{ID: rec.ID, Revision: rec.Revision}} }

func (p *partitionedStore) purge(rec semel.Record) {
	p.t.Helper()
	if n, err := p.Purge(p.t.Context(), ref(rec)); err != nil || n != 1 {
		p.t.Fatalf("Purge: %d, %v", n, err)
	}
}

func TestPartitions(t *testing.T) {
	t.Run("a result is kept apart from its record and goes with its partition", func(t *testing.T) {
		p := openPartitioned(t)
		now := p.at(0)
		rec := p.complete("k", now-now%semel.Instant(day)) // by the server's clock it has expired, too
		if n := p.number("SELECT count(*) FROM semel.idempotency_log WHERE response_payload IS NULL AND result_bucket IS NOT NULL"); n != 1 {
			t.Errorf("%d records keep their result elsewhere, want 1", n)
		}
		if _, rows := p.partitions(); rows != 1 {
			t.Errorf("%d results are in partitions, want 1", rows)
		}
		p.whole(rec)
		p.shift.Add(int64(4 * day))
		p.tend()
		p.whole(rec) // expired, and not purged yet
		p.purge(rec)
		if _, rows := p.partitions(); rows != 1 {
			t.Errorf("%d results are in partitions, want 1 until its partition goes", rows)
		}
		p.tend()
		if tables, rows := p.partitions(); tables != 2 || rows != 0 {
			t.Errorf("%d partitions with %d results are left, want those of today and tomorrow, empty", tables, rows)
		}
		put(t, p.Store, numbered("k", 3), semel.Revision{})
	})
	t.Run("small results, results that stay for very long and results of a first version are in the row", func(t *testing.T) {
		p := openPartitioned(t)
		p.whole(p.complete("far", p.at(400*day)))
		p.whole(put(t, p.Store, completed(numbered("first", 1), p.at(day)), semel.Revision{}))
		claim := put(t, p.Store, numbered("small", 1), semel.Revision{})
		small := completed(claim, p.at(day))
		small.Result.Data = []byte("small")
		p.whole(put(t, p.Store, small, claim.Revision))
		if n := p.number("SELECT count(*) FROM semel.idempotency_result"); n != 0 {
			t.Errorf("%d results are kept apart", n)
		}
	})
	t.Run("a result that comes before its partition moves into it", func(t *testing.T) {
		p := openPartitioned(t)
		rec := p.complete("k", p.at(9*day))
		if n := p.other(); n != 1 {
			t.Fatalf("%d results have no partition, want 1: nothing is proved", n)
		}
		p.whole(rec)
		p.tend()
		if tables, rows := p.partitions(); p.other() != 0 || rows != 1 || tables != 11 {
			t.Errorf("%d results have no partition, %d have one of %d", p.other(), rows, tables)
		}
		p.whole(rec)
	})
	t.Run("what a dead store left between detaching and dropping is dropped", func(t *testing.T) {
		p := openPartitioned(t)
		p.complete("k", p.at(day))
		b := int64(p.at(0)) / int64(day)
		pgtest.Shared(t).Exec(t, p.database, fmt.Sprintf("ALTER TABLE semel.idempotency_result DETACH PARTITION semel.idempotency_result_%d", b))
		p.shift.Add(int64(day))
		p.tend()
		if n := p.number(fmt.Sprintf("SELECT count(*) FROM pg_class WHERE relname = 'idempotency_result_%d'", b)); n != 0 {
			t.Error("the table is still there")
		}
	})
	t.Run("results without a partition go when nothing refers to them", func(t *testing.T) {
		p := openPartitioned(t)
		late, kept := p.complete("late", p.at(-3*day)), p.complete("kept", p.at(-3*day))
		if n := p.other(); n != 2 {
			t.Fatalf("%d results have no partition, want 2: nothing is proved", n)
		}
		p.purge(late)
		p.tend()
		if n := p.other(); n != 1 {
			t.Errorf("%d results have no partition, want the one of the record that is kept", n)
		}
		p.whole(kept)
	})
	t.Run("a record that is purged before it expires takes its result along", func(t *testing.T) {
		p := openPartitioned(t)
		p.purge(p.complete("k", p.at(day)))
		if _, rows := p.partitions(); rows+p.other() != 0 {
			t.Errorf("%d results are left", rows+p.other())
		}
	})
	t.Run("a result that is gone is noticed", func(t *testing.T) {
		p := openPartitioned(t)
		rec := p.complete("k", p.at(day))
		pgtest.Shared(t).Exec(t, p.database, "DELETE FROM semel.idempotency_result")
		if _, err := p.Get(t.Context(), rec.ID); err == nil {
			t.Error("Get gives a record without its result")
		}
	})
	t.Run("a partition is kept for a record that is being completed while it is looked at", func(t *testing.T) {
		p := openPartitioned(t)
		b := int64(p.at(0)) / int64(day)
		p.complete("other", p.at(3*day))
		p.tend() // so that no partition has to be made later
		rec := put(t, p.Store, numbered("k", 1), semel.Revision{})
		d := rec.ID.Digest()
		p.shift.Add(int64(day))
		conn, watch := pgtest.Shared(t).Conn(t, p.database), pgtest.Shared(t).Conn(t, p.database)
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{
			fmt.Sprintf("UPDATE semel.idempotency_log SET result_bucket = %d, expires_at = to_timestamp(%d) WHERE idempotency_key = 'k'", b, b*int64(day/time.Second)),
			fmt.Sprintf("INSERT INTO semel.idempotency_result VALUES (%d, '\\x%x', '\\x00', '\\x00')", b, d[:]),
		} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		tended := make(chan error)
		go func() { tended <- p.tendPartitions(t.Context()) }()
		await(t, "it waits for the transaction", func() bool {
			var n int
			err := watch.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&n)
			return err == nil && n > 0
		})
		if err := errors.Join(tx.Commit(t.Context()), <-tended); err != nil {
			t.Fatal(err)
		}
		p.tend()
		if _, rows := p.partitions(); rows != 2 || p.other() != 0 {
			t.Errorf("%d results are in partitions, want two with the one that was completed", rows)
		}
	})
	t.Run("while partitions are dropped and records written, no result is lost", partitionRace)
}

// partitionRace writes and purges records whose period is over, so that their
// partition is dropped, or about to be, at all times.
func partitionRace(t *testing.T) {
	p := openPartitioned(t)
	p.tend()
	p.shift.Add(int64(day)) // what was today's partition is up
	expires := p.at(-day)
	var done atomic.Bool
	var work sync.WaitGroup
	var tended, wrote atomic.Int64
	work.Go(func() {
		for !done.Load() {
			if err := p.tendPartitions(t.Context()); err != nil {
				t.Error(err)
				return
			}
			tended.Add(1)
			b := int64(expires) / int64(day)
			// As if no store had dropped it yet.
			conn := pgtest.Shared(t).Conn(t, p.database)
			_, err := conn.Exec(t.Context(), fmt.Sprintf("CREATE TABLE IF NOT EXISTS semel.idempotency_result_%d PARTITION OF semel.idempotency_result FOR VALUES FROM (%d) TO (%d)", b, b, b+1))
			if err != nil && sqlState(err) != "23514" { // its results are in the default partition
				t.Error(err)
			}
			_ = conn.Close(t.Context())
		}
	})
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 60 {
				rec := numbered(fmt.Sprintf("%d-%d", w, i), 1)
				next := completed(rec, expires)
				if err := race(t.Context(), p.Store, rec, next); err != nil {
					t.Errorf("%s: %v", rec.ID.Key, err)
				}
				wrote.Add(1)
			}
		})
	}
	writers.Wait()
	done.Store(true)
	work.Wait()
	t.Logf("%d records written and purged while partitions were looked after %d times", wrote.Load(), tended.Load())
	if tended.Load() < 2 {
		t.Error("nothing raced, so nothing is proved")
	}
}

// race writes a record and its outcome, reads it and purges it. What is refused for
// the moment is done again.
func race(ctx context.Context, s *Store, rec, next semel.Record) error {
	write := func(w semel.Write) error {
		for {
			got, applied, err := s.Apply(ctx, w)
			switch {
			case err == nil && (applied || got.Revision == w.Record.Revision):
				return nil
			case sqlState(err) != "55P03" && !errors.Is(err, semel.ErrNotApplied):
				return fmt.Errorf("applied %v, %w", applied, err)
			}
		}
	}
	if err := errors.Join(write(semel.Write{Record: rec}), write(semel.Write{Record: next, Expect: rec.Revision})); err != nil {
		return err
	}
	for range 5 {
		got, err := s.Get(ctx, rec.ID)
		if err != nil && sqlState(err) != "55P03" && !errors.Is(err, ErrBusy) {
			return err
		}
		if err == nil && !bytes.Equal(got.Result.Data, next.Result.Data) {
			return errors.New("the result is another")
		}
	}
	for {
		n, err := s.Purge(ctx, ref(next))
		if err == nil && n == 1 {
			return nil
		}
		if sqlState(err) != "55P03" && !errors.Is(err, ErrBusy) {
			return fmt.Errorf("purged %d, %w", n, err)
		}
	}
}

func TestPartitionedSchema(t *testing.T) {
	server := pgtest.Shared(t)
	t.Run("a schema with records takes partitions, and what is there stays readable", func(t *testing.T) {
		s, database := open(t, Options{})
		rec := completed(put(t, s, numbered("old", 1), semel.Revision{}), testRecord("").CreatedAt)
		put(t, s, rec, numbered("old", 1).Revision)
		for range 2 { // a second time changes nothing
			if err := Partition(t.Context(), newTestPool(t, server.URL(database)), "", day); err != nil {
				t.Fatal(err)
			}
		}
		p := &partitionedStore{Store: mustOpen(t, server.URL(database), nil), t: t, database: database}
		defer mustClose(t, p.Store)
		p.whole(rec)
		p.complete("new", p.at(day))
		if n := p.number("SELECT count(*) FROM semel.idempotency_result"); n != 1 {
			t.Errorf("%d results are kept apart, want that of the new record", n)
		}
	})
	t.Run("a length other than that of the schema is refused", func(t *testing.T) {
		_, plain := open(t, Options{})
		_, daily := open(t, Options{Partition: day})
		for _, c := range []struct {
			database string
			opts     Options
			ok       bool
		}{
			{plain, Options{Partition: day}, false},
			{daily, Options{Partition: day}, true},
			{daily, Options{}, true},
			{daily, Options{Partition: time.Hour}, false},
			{daily, Options{Partition: time.Hour, Migrate: true}, false},
		} {
			s, err := Open(t.Context(), server.URL(c.database), &c.opts)
			if c.ok != (err == nil) || err != nil && !errors.Is(err, ErrPartition) {
				t.Errorf("Open with %+v gives %v", c.opts, err)
			}
			if err == nil {
				mustClose(t, s)
			}
		}
		for _, period := range []time.Duration{-day, time.Second, day + time.Millisecond} {
			if _, err := Open(t.Context(), server.URL(daily), &Options{Partition: period}); err == nil {
				t.Errorf("a period of %v is accepted", period)
			}
		}
	})
	t.Run("the printed SQL makes partitions that the store accepts", func(t *testing.T) {
		_, database := open(t, Options{})
		var sql strings.Builder
		if err := PrintPartition(&sql, "", day); err != nil {
			t.Fatal(err)
		}
		server.Exec(t, database, sql.String())
		mustClose(t, mustOpen(t, server.URL(database), &Options{Partition: day}))
	})
	t.Run("statements use indexes", func(t *testing.T) {
		p := openPartitioned(t)
		rec := p.complete("k", p.at(day))
		o, err := newOp(semel.Write{Record: rec, Expect: rec.Revision})
		if err != nil {
			t.Fatal(err)
		}
		for what, st := range map[string]*statement{
			"update": p.sql.updating([]*op{o}), "create": p.sql.creating([]*op{o}), "get": p.sql.getting([]digest{o.id}),
		} {
			if plan := explain(t, p.database, plans, st); strings.Contains(plan, "Seq Scan on idempotency") {
				t.Errorf("%s does not use an index:\n%s", what, plan)
			}
		}
	})
}
