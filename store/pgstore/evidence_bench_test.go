package pgstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// benchEntry is about as large as what package evidence writes.
var benchEntry = store.Entry{Leaf: bytes.Repeat([]byte("l"), 470), Opening: bytes.Repeat([]byte("o"), 270), Subject: store.Subject{1}}

// BenchmarkEvidence compares a claim and its completion, with a result of 1 KiB, by
// 64 callers, without evidence and with an entry each, and with that while somebody
// reads the log as it grows, as an integrator does. They take turns, each on its own
// tables.
func BenchmarkEvidence(b *testing.B) {
	server := pgtest.Shared(b)
	const callers = 64
	open := func(evidence bool) (*Store, func(n int64)) {
		s := mustOpen(b, server.URL(server.Database(b)), &Options{Migrate: true, AcquireTimeout: 10 * time.Second})
		b.Cleanup(func() { mustClose(b, s) })
		return s, func(n int64) {
			if err := notedCycle(b.Context(), s, uint64(n), evidence); err != nil {
				b.Error(err)
			}
		}
	}
	_, bare := open(false)
	_, noted := open(true)
	followed, tailed := open(true)
	var without, with, read rate
	entries := 0
	for b.Loop() {
		without.run(callers, bare)
		with.run(callers, noted)
		ctx, stop := context.WithCancel(b.Context())
		var reader sync.WaitGroup
		reader.Go(func() { entries += follow(ctx, b, followed, entries) })
		read.run(callers, tailed)
		stop()
		reader.Wait()
	}
	b.ReportMetric(without.perSecond(), "without/s")
	b.ReportMetric(with.perSecond(), "with/s")
	b.ReportMetric(read.perSecond(), "read/s")
	b.ReportMetric(with.perSecond()/without.perSecond(), "ratio")
	b.ReportMetric(read.perSecond()/without.perSecond(), "ratio-read")
	b.ReportMetric(float64(entries)/read.took.Seconds(), "entries-read/s")
}

// follow reads what comes to the log, and returns how many entries that were.
func follow(ctx context.Context, b *testing.B, s *Store, from int) (n int) {
	for ctx.Err() == nil {
		list, err := s.ReadEvidence(b.Context(), uint64(from+n), 1000)
		if err != nil {
			b.Error(err)
			return n
		}
		if n += len(list); len(list) < 1000 {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	return n
}

// notedCycle is cycle, with an entry for each write.
func notedCycle(ctx context.Context, s *Store, n uint64, evidence bool) error {
	rec := testRecord(fmt.Sprint("key-", n))
	binary.BigEndian.PutUint64(rec.Revision[:], n)
	rec.Revision[15] = 1
	claim := store.Write{Record: new(rec)}
	done := claim
	done.Expect = rec.Revision
	done.Record = new(rec)
	r := done.Record
	r.Revision[15] = 2
	r.State, r.Disposition, r.Result.Data = semel.Completed, semel.DispositionCompleted, benchResult
	r.ExpiresAt = r.CreatedAt.Add(24 * time.Hour)
	r.NextAt = r.ExpiresAt
	if evidence {
		en := benchEntry
		binary.BigEndian.PutUint64(en.Subject[:], n)
		claim.Evidence, done.Evidence = []store.Entry{en}, []store.Entry{en}
	}
	for _, w := range []store.Write{claim, done} {
		if _, applied, err := s.Apply(ctx, w); err != nil || !applied {
			return fmt.Errorf("write: applied %v, %w", applied, err)
		}
	}
	return nil
}

// BenchmarkReadEvidence reads a log that has its numbers, in pages of 1,000.
func BenchmarkReadEvidence(b *testing.B) {
	server := pgtest.Shared(b)
	database := server.Database(b)
	s := mustOpen(b, server.URL(database), &Options{Migrate: true})
	b.Cleanup(func() { mustClose(b, s) })
	const size = 50_000
	server.Exec(b, database, fmt.Sprintf("INSERT INTO semel.semel_evidence_new (subject, leaf, opening) SELECT substr(sha256(n::text::bytea), 1, 16), repeat('l', 470)::bytea, repeat('o', 270)::bytea FROM generate_series(1, %d) n", size))
	start := time.Now()
	if _, err := s.ReadEvidence(b.Context(), size-1, 1); err != nil {
		b.Fatal(err)
	}
	numbering := time.Since(start)
	n := 0
	for b.Loop() {
		list, err := s.ReadEvidence(b.Context(), uint64(n%size), 1000)
		if err != nil || len(list) != 1000 {
			b.Fatalf("%d entries, %v", len(list), err)
		}
		n += len(list)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "entries/s")
	b.ReportMetric(size/numbering.Seconds(), "numbered/s")
}
