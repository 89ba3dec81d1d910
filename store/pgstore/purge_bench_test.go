package pgstore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/pgtest"
)

// BenchmarkPurge fills a store with completed records and purges them, in rounds,
// with both layouts. It reports how many are purged in a second, with the dropping
// of their partition, and what else it costs: the vacuum after it, the bytes of the
// server's log for both, and how large the tables and indexes are in the end, when
// they hold the tenth of the records that expires a day later.
//
// Vacuum runs when it is told, so that rounds can be compared.
func BenchmarkPurge(b *testing.B) {
	server := pgtest.Start(b, &pgtest.Options{Settings: map[string]string{"autovacuum": "off", "max_wal_size": "4GB", "checkpoint_timeout": "1h"}})
	for _, size := range []int{100, 1 << 10, 16 << 10} {
		for _, layout := range []struct {
			name   string
			period time.Duration
		}{{"plain", 0}, {"partitioned", day}} {
			b.Run(fmt.Sprintf("%d bytes/%s", size, layout.name), func(b *testing.B) {
				database := server.Database(b)
				s := mustOpen(b, server.URL(database), &Options{Migrate: true, Partition: layout.period, NoNotices: true})
				b.Cleanup(func() { mustClose(b, s) })
				r := purgeRounds{s: s, conn: server.Conn(b, database), result: make([]byte, size)}
				_, _ = rand.NewChaCha8([32]byte{}).Read(r.result) // as what is encrypted or compressed already
				for b.Loop() {
					r.round(b)
				}
				r.report(b)
			})
		}
	}
}

// BenchmarkLayouts compares what completed records cost in the two layouts before
// they are purged: claims and outcomes in batches of 256. The stores take turns, so
// that what else the machine does falls on both.
func BenchmarkLayouts(b *testing.B) {
	server := pgtest.Start(b, nil)
	for _, size := range []int{100, 1 << 10, 16 << 10} {
		b.Run(fmt.Sprintf("%d bytes", size), func(b *testing.B) {
			var layouts [2]purgeRounds
			for i, period := range []time.Duration{0, day} {
				s := mustOpen(b, server.URL(server.Database(b)), &Options{Migrate: true, Partition: period, NoNotices: true})
				b.Cleanup(func() { mustClose(b, s) })
				layouts[i] = purgeRounds{s: s, result: make([]byte, size)}
				_, _ = rand.NewChaCha8([32]byte{}).Read(layouts[i].result)
				if period != 0 {
					layouts[i].expect(b, s.tendPartitions(b.Context()))
				}
			}
			now, err := layouts[0].s.Now(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				for i := range layouts {
					start := time.Now()
					layouts[i].fillBatch(b, now.Add(day/2))
					layouts[i].fill += time.Since(start)
				}
			}
			plain, apart := layouts[0].fill.Seconds(), layouts[1].fill.Seconds()
			b.ReportMetric(float64(layouts[0].wrote)/plain, "plain/s")
			b.ReportMetric(float64(layouts[1].wrote)/apart, "partitioned/s")
			b.ReportMetric(plain/apart, "ratio")
		})
	}
}

// purgeRows is how many records there are in a round.
const purgeRows = 20_480

type purgeRounds struct {
	s      *Store
	conn   *pgx.Conn
	result []byte

	rounds, wrote, kept   int
	purging, vacuum, fill time.Duration
	wal, dead             int64
}

func (r *purgeRounds) round(b *testing.B) {
	b.Helper()
	r.rounds++
	t := tender{conn: r.conn, schema: r.s.opts.Schema, period: int64(day / time.Second)}
	now, err := r.s.Now(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	bucket := int64(now) / int64(day)
	if r.s.period != 0 {
		r.expect(b, r.s.tendPartitions(b.Context()))
	}
	start := time.Now()
	refs := r.filled(b, semel.Instant(bucket*int64(day)))
	r.fill += time.Since(start)
	r.exec(b, "CHECKPOINT")
	before := r.number(b, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")

	start = time.Now()
	for part := range slices.Chunk(refs, purgeBatch) {
		if n, err := r.s.Purge(b.Context(), part); err != nil || n != len(part) {
			b.Fatalf("Purge: %d of %d, %v", n, len(part), err)
		}
	}
	if r.s.period != 0 {
		t.current = bucket + 1
		r.expect(b, t.retire(b.Context(), bucket, true))
	}
	r.purging += time.Since(start)

	r.exec(b, "SELECT pg_stat_force_next_flush()")
	r.dead += r.number(b, "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables")
	start = time.Now()
	r.exec(b, "VACUUM semel.idempotency_log")
	r.vacuum += time.Since(start)
	r.wal += r.number(b, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint") - before
}

// filled writes claims and outcomes, and returns what there is to purge.
func (r *purgeRounds) filled(b *testing.B, expires semel.Instant) (refs []semel.Ref) {
	b.Helper()
	for range purgeRows / 256 {
		refs = append(refs, r.fillBatch(b, expires)...)
	}
	return refs
}

// fillBatch writes 256 claims and their outcomes. Every tenth expires a day later,
// and is not to be purged.
func (r *purgeRounds) fillBatch(b *testing.B, expires semel.Instant) (refs []semel.Ref) {
	b.Helper()
	var claims, outcomes []semel.Write
	for range 256 {
		r.wrote++
		rec := numbered(fmt.Sprint("key-", r.wrote), 1)
		claims = append(claims, semel.Write{Record: rec})
		next := completed(rec, expires)
		next.Result.Data = r.result
		if r.wrote%10 == 0 {
			next.ExpiresAt = expires.Add(day)
			r.kept++
		} else {
			refs = append(refs, semel.Ref{ID: next.ID, Revision: next.Revision})
		}
		outcomes = append(outcomes, semel.Write{Record: next, Expect: rec.Revision})
	}
	r.send(b, claims)
	r.send(b, outcomes)
	return refs
}

// send makes writes as one batch.
func (r *purgeRounds) send(b *testing.B, writes []semel.Write) {
	b.Helper()
	ops := make([]*op, len(writes))
	for i, w := range writes {
		o, err := newOp(w)
		r.expect(b, err)
		ops[i] = o
	}
	slices.SortFunc(ops, func(a, b *op) int { return bytes.Compare(a.id[:], b.id[:]) })
	conn, err := r.s.writes.Acquire(b.Context())
	r.expect(b, err)
	defer conn.Release()
	r.expect(b, r.s.sql.send(b.Context(), conn.Conn().PgConn(), ops))
}

func (r *purgeRounds) report(b *testing.B) {
	b.Helper()
	rows := float64(r.wrote - r.kept)
	size := func(what string) float64 {
		return float64(r.number(b, "SELECT sum("+what+"(c.oid))::bigint FROM pg_class c WHERE c.relnamespace = 'semel'::regnamespace AND c.relkind = 'r'")) / 1e6
	}
	b.ReportMetric(rows/r.purging.Seconds(), "purged/s")
	b.ReportMetric(rows/(r.purging+r.vacuum).Seconds(), "purged+vacuumed/s")
	b.ReportMetric(float64(r.wrote)/r.fill.Seconds(), "completed/s")
	b.ReportMetric(float64(r.wal)/rows, "log-B/row")
	b.ReportMetric(float64(r.dead)/rows, "dead/row")
	b.ReportMetric(size("pg_table_size"), "tables-MB")
	b.ReportMetric(size("pg_indexes_size"), "indexes-MB")
	b.ReportMetric(float64(r.rounds), "rounds")
}

func (r *purgeRounds) exec(b *testing.B, sql string) {
	b.Helper()
	_, err := r.conn.Exec(b.Context(), sql)
	r.expect(b, err)
}

func (r *purgeRounds) number(b *testing.B, query string) (n int64) {
	b.Helper()
	r.expect(b, r.conn.QueryRow(b.Context(), query).Scan(&n))
	return n
}

func (r *purgeRounds) expect(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
