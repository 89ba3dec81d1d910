package pgstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store/pgstore"
)

// BenchmarkSizes measures what records take in the database, by the size of their results,
// which don't compress. docs/postgresql.md has the figures:
//
//	go test ./store/pgstore -run '^$' -bench Sizes -benchtime 1x
//
// Of each record it reports the bytes of the table with what is stored beside it, of the
// indexes, and of the write-ahead log; the share of the room that is left after all were
// deleted and vacuumed, and by what factor as many new ones made it grow then. Nothing is
// vacuumed by itself meanwhile.
func BenchmarkSizes(b *testing.B) {
	server := pgtest.Start(b, &pgtest.Options{Settings: map[string]string{"autovacuum": "off"}})
	for _, size := range []int{100, 1 << 10, 16 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			database := server.Database(b)
			s, err := pgstore.Open(b.Context(), server.URL(database), &pgstore.Options{Migrate: true})
			if err != nil {
				b.Fatal(err)
			}
			engine, err := semel.New(s, &semel.Options{Operations: []semel.Operation{{Name: "payments.charge"}}})
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := engine.Close(context.Background()); err != nil {
					b.Error(err)
				}
				if err := s.Close(); err != nil {
					b.Error(err)
				}
			}()
			conn := server.Conn(b, database)
			const records = 1500
			for b.Loop() {
				wal := number(b, conn, "SELECT pg_current_wal_insert_lsn() - '0/0'")
				charge(b, engine, "first", records, size)
				wal = number(b, conn, "SELECT pg_current_wal_insert_lsn() - '0/0'") - wal
				server.Exec(b, database, "VACUUM semel.semel_records")
				table := number(b, conn, "SELECT pg_table_size('semel.semel_records')")
				indexes := number(b, conn, "SELECT pg_indexes_size('semel.semel_records')")
				server.Exec(b, database, "DELETE FROM semel.semel_records WHERE operation = 'payments.charge'")
				server.Exec(b, database, "VACUUM (TRUNCATE off) semel.semel_records")
				left := number(b, conn, "SELECT pg_total_relation_size('semel.semel_records')")
				charge(b, engine, "second", records, size)
				grown := number(b, conn, "SELECT pg_total_relation_size('semel.semel_records')")
				b.ReportMetric(table/records, "table-B/record")
				b.ReportMetric(indexes/records, "indexes-B/record")
				b.ReportMetric(wal/records, "wal-B/record")
				b.ReportMetric(left/(table+indexes), "left")
				b.ReportMetric(grown/(table+indexes), "refilled")
				b.ReportMetric(0, "ns/op") // of all of it, which says nothing
			}
		})
	}
}

// number is the only value of a query.
func number(b *testing.B, conn *pgx.Conn, sql string) (n float64) {
	b.Helper()
	if err := conn.QueryRow(b.Context(), sql).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// charge makes calls that complete with results of a size, as 32 callers.
func charge(b *testing.B, engine *semel.Engine, prefix string, calls, size int) {
	b.Helper()
	var wg sync.WaitGroup
	for caller := range 32 {
		wg.Go(func() {
			for n := caller; n < calls; n += 32 {
				call := semel.Call{
					Tenant: "acme", Principal: "checkout", Operation: "payments.charge", Key: fmt.Sprintf("%s-%s-%d", prefix, rand.Text(), n),
					Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(prefix)),
				}
				ans, err := engine.Begin(b.Context(), call)
				if err == nil {
					data := make([]byte, size)
					_, _ = rand.Read(data) // never fails
					err = ans.Attempt.Complete(b.Context(), semel.Result{Data: data})
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
