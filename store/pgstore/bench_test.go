package pgstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/turns"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest"
)

func BenchmarkEngine(b *testing.B) {
	server := pgtest.Shared(b)
	storetest.Bench(b, func(b *testing.B) semel.Store {
		s := mustOpen(b, server.URL(server.Database(b)), &Options{Migrate: true})
		b.Cleanup(func() { mustClose(b, s) })
		return s
	})
}

// BenchmarkCoalescing compares begin and complete of new keys, with a result of
// 1 KiB, where concurrent writes share a statement and where each has its own. Both
// have as many connections as serve them best. They take turns of a second, each on
// its own table, so that what else the machine does falls on both.
func BenchmarkCoalescing(b *testing.B) {
	server := pgtest.Shared(b)
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("%d callers", callers), func(b *testing.B) {
			shared := cycles(b, server.URL(server.Database(b)), Options{})
			single := cycles(b, server.URL(server.Database(b)), Options{batch: 1, MaxConns: min(callers, 16)})
			plain := openPlain(b, server.URL(server.Database(b)), min(callers, 16))
			var a, z, p rate
			for b.Loop() {
				a.run(callers, shared)
				z.run(callers, single)
				p.run(callers, plain)
			}
			b.ReportMetric(p.perSecond(), "plain/s")
			b.ReportMetric(a.perSecond()/p.perSecond(), "ratio-to-plain")
			b.ReportMetric(a.perSecond(), "shared/s")
			b.ReportMetric(z.perSecond(), "single/s")
			b.ReportMetric(a.perSecond()/z.perSecond(), "ratio")
		})
	}
}

// cycles opens a store and returns what begins and completes the n-th new key there.
func cycles(b *testing.B, url string, o Options) func(n int64) {
	o.Migrate, o.AcquireTimeout = true, 10*time.Second
	s := mustOpen(b, url, &o)
	b.Cleanup(func() { mustClose(b, s) })
	return func(n int64) {
		if err := cycle(b.Context(), s, uint64(n)); err != nil {
			b.Error(err)
		}
	}
}

// overheard opens a store beside another one that listens.
func overheard(b *testing.B, o Options) func(n int64) {
	server := pgtest.Shared(b)
	url := server.URL(server.Database(b))
	other := mustOpen(b, url, &Options{Migrate: true})
	b.Cleanup(func() { mustClose(b, other) })
	return cycles(b, url, o)
}

// BenchmarkNoticePause shows what the pause between notices is worth to writes.
func BenchmarkNoticePause(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint("callers ", callers), func(b *testing.B) {
			turns.Worth(b, callers, overheard(b, Options{}), overheard(b, Options{pause: 1}))
		})
	}
}

// BenchmarkNoticesToOthers shows what it is worth that a store that is alone sends no notices.
func BenchmarkNoticesToOthers(b *testing.B) {
	server := pgtest.Shared(b)
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint("callers ", callers), func(b *testing.B) {
			turns.Worth(b, callers, cycles(b, server.URL(server.Database(b)), Options{}), overheard(b, Options{}))
		})
	}
}

// openPlain is what a program does that has no such store: prepared statements with
// one row each, on the same table.
func openPlain(b *testing.B, url string, conns int) func(n int64) {
	s := mustOpen(b, url, &Options{Migrate: true})
	b.Cleanup(func() { mustClose(b, s) })
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns = int32(conns)
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	const insert = `INSERT INTO semel.semel_records (id, revision, record, next_at, held, fingerprint, result, state,
		created_at, updated_at, expires_at, since, key, operation, principal, tenant)
		VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16) ON CONFLICT DO NOTHING`
	const update = `UPDATE semel.semel_records SET revision = $3, record = $4, next_at = $5, result = $6, state = $7,
		updated_at = $8, expires_at = $9 WHERE id = $1 AND revision = $2`
	return func(n int64) {
		rec := testRecord(fmt.Sprint("key-", n))
		id, at := rec.ID.Digest(), rec.CreatedAt.Time()
		record, err := appendRecord(nil, &rec)
		if err != nil {
			b.Error(err)
		}
		tag, err := pool.Exec(b.Context(), insert, id[:], rec.Revision[:], record, int64(rec.NextAt), false, rec.Fingerprint.String(), nil,
			"processing", at, at, nil, int64(rec.CreatedAt), rec.ID.Key, rec.ID.Operation, rec.ID.Principal, rec.ID.Tenant)
		if err != nil || tag.RowsAffected() != 1 {
			b.Error("claim: ", err)
		}
		after := store.Revision{2}
		tag, err = pool.Exec(b.Context(), update, id[:], rec.Revision[:], after[:], record, int64(rec.NextAt)+1, benchResult, "completed", at, at)
		if err != nil || tag.RowsAffected() != 1 {
			b.Error("completion: ", err)
		}
	}
}

// cycle writes a claim and its outcome, both new to the store.
func cycle(ctx context.Context, s *Store, n uint64) error {
	rec := testRecord(fmt.Sprint("key-", n))
	binary.BigEndian.PutUint64(rec.Revision[:], n)
	rec.Revision[15] = 1
	if _, applied, err := s.Apply(ctx, store.Write{Record: new(rec)}); err != nil || !applied {
		return fmt.Errorf("claim: applied %v, %w", applied, err)
	}
	expect := rec.Revision
	rec.Revision[15] = 2
	rec.State, rec.Disposition, rec.Result.Data = semel.Completed, semel.DispositionCompleted, benchResult
	rec.ExpiresAt = rec.CreatedAt.Add(24 * time.Hour)
	rec.NextAt = rec.ExpiresAt
	if _, applied, err := s.Apply(ctx, store.Write{Record: new(rec), Expect: expect}); err != nil || !applied {
		return fmt.Errorf("completion: applied %v, %w", applied, err)
	}
	return nil
}

var benchResult = bytes.Repeat([]byte("r"), 1024)

// testRecord is a record as a claim writes it.
func testRecord(key string) semel.Record {
	at := store.InstantOf(time.Date(2031, 2, 3, 4, 5, 6, 7, time.UTC))
	return semel.Record{
		ID:       semel.ID{Tenant: "tenant", Principal: "principal", Operation: "operation", Key: key},
		Revision: store.Revision{1}, State: semel.Processing, Principal: "principal", Fence: 1, Origin: 1, Attempt: 1, Holder: "holder",
		Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(key)),
		CreatedAt:   at, UpdatedAt: at, StartedAt: at, LeaseUntil: at.Add(time.Minute), NextAt: at.Add(time.Minute),
	}
}

// rate counts what callers do in turns.
type rate struct {
	n    atomic.Int64
	took time.Duration
}

const benchTurn = 300 * time.Millisecond

func (r *rate) run(callers int, step func(n int64)) {
	start := time.Now()
	var group = make(chan struct{}, callers)
	for range callers {
		go func() {
			for time.Since(start) < benchTurn {
				step(r.n.Add(1))
			}
			group <- struct{}{}
		}()
	}
	for range callers {
		<-group
	}
	r.took += time.Since(start)
}

func (r *rate) perSecond() float64 { return float64(r.n.Load()) / r.took.Seconds() }
