package pebblestore

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/turns"
	"github.com/semelhq/semel/store"
)

// onDisk opens a store in memory, as on a disk that takes some time to sync a log.
func onDisk(b *testing.B, syncs time.Duration) *Store {
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if strings.HasSuffix(op.Path, ".log") {
				<-time.After(syncs)
			}
		}
		return nil
	}))
	s := mustOpen(b, "store", &Options{FS: fs})
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// claims writes the n-th new record.
func claims(b *testing.B, s *Store) func(n int64) {
	return func(n int64) {
		rec := testRecord(testID(strconv.FormatInt(n, 10)), 1, semel.Processing)
		if _, applied, err := s.Apply(b.Context(), store.Write{Record: new(rec)}); !applied || err != nil {
			b.Error(applied, err)
		}
	}
}

// BenchmarkInFlight shows what it is worth to put further batches in the log while one is
// being synced, to 64 callers on a disk that syncs in 0.3 ms.
func BenchmarkInFlight(b *testing.B) {
	many, one := onDisk(b, 300*time.Microsecond), onDisk(b, 300*time.Microsecond)
	one.commits.syncing = make(chan struct{}, 1)
	turns.Worth(b, 64, claims(b, many), claims(b, one))
}

// BenchmarkStripes shows what so many stripes are worth, against a single one, to 64 callers
// who write new records and read others, if a read takes a millisecond. A read is repeated
// if a record of its stripe changes meanwhile.
func BenchmarkStripes(b *testing.B) {
	many, one := onDisk(b, time.Millisecond), onDisk(b, time.Millisecond)
	one.stripes = make([]stripe, 1)
	mixed := func(s *Store) func(n int64) {
		claim := claims(b, s)
		claim(0)
		s.looked = func() { <-time.After(time.Millisecond) }
		return func(n int64) {
			if n%2 == 0 {
				claim(n)
			} else if _, err := s.Get(b.Context(), testID("0")); err != nil {
				b.Error(err)
			}
		}
	}
	turns.Worth(b, 64, mixed(many), mixed(one))
}

// BenchmarkKinds shows how many bytes Pebble writes to tables for each byte that it is given,
// when each record and each change of it has an entry in the evidence log.
func BenchmarkKinds(b *testing.B) {
	b.Run("with", func(b *testing.B) { amplified(b, func(*pebble.Options) {}) })
	b.Run("without", func(b *testing.B) {
		amplified(b, func(po *pebble.Options) { po.Experimental.SpanPolicyFunc = nil })
	})
}

// BenchmarkL0Tables shows the same, if Pebble merges new tables when it does by itself.
func BenchmarkL0Tables(b *testing.B) {
	b.Run("with", func(b *testing.B) { amplified(b, func(*pebble.Options) {}) })
	b.Run("without", func(b *testing.B) {
		amplified(b, func(po *pebble.Options) { po.L0CompactionThreshold, po.L0StopWritesThreshold = 0, 0 })
	})
}

// amplified writes calls with changed options, and reports the bytes of tables for each byte.
func amplified(b *testing.B, change func(*pebble.Options)) {
	data, written := newAnswers(), 0.0
	for range b.N {
		po := PebbleOptions(&Options{FS: vfs.NewMem(), MemTableBytes: 1 << 20})
		po.Experimental.SpanPolicyFunc = kinds
		change(po)
		db, err := pebble.Open("store", po)
		if err != nil {
			b.Fatal(err)
		}
		var m meta
		for i := range 20_000 {
			id := testID(strconv.Itoa(i))
			claim, ended := testRecord(id, 1, semel.Processing), testRecord(id, 2, semel.Completed)
			ended.Result.Data = data.of(i)
			o := &op{digest: id.Digest(), creates: true, was: never, rec: &claim}
			for _, o.due = range []dueTime{dueTime(i), dueTime(i + 1000)} {
				o.evidence = []store.Entry{{Leaf: data.of(2 * i)[:benchLeaf], Opening: data.of(3 * i)[:benchOpening], Subject: testSubject(id)}}
				batch := db.NewBatch()
				putAll([]*op{o}, batch, &m, new(attributes), nil)
				if err := batch.Commit(pebble.NoSync); err != nil {
					b.Fatal(err)
				}
				o.creates, o.was, o.rec = false, o.due, &ended
			}
		}
		for db.Metrics().Compact.NumInProgress > 0 {
			<-time.After(time.Millisecond)
		}
		total := db.Metrics().Total()
		written += total.WriteAmp()
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(written/float64(b.N), "written/given")
}

// BenchmarkBlockSize shows what larger blocks than Pebble's own are worth, to reads of
// records that are some 200 times as large as the cache together: the index of smaller
// blocks doesn't fit into it. A read of the disk takes 0.1 ms.
func BenchmarkBlockSize(b *testing.B) {
	const records = 40_000
	key := func(n int64) []byte {
		digest := testID(strconv.FormatInt(n*7919%records, 10)).Digest()
		return digest[:]
	}
	reads := func(size int) func(n int64) {
		var slow atomic.Bool
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileReadAt && slow.Load() {
				<-time.After(100 * time.Microsecond)
			}
			return nil
		}))
		po := PebbleOptions(&Options{FS: fs, MemTableBytes: 256 << 10, CacheBytes: 256 << 10})
		for i := range po.Levels {
			po.Levels[i].BlockSize = size
		}
		db, err := pebble.Open("store", po)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			slow.Store(false)
			if err := db.Close(); err != nil {
				b.Error(err)
			}
		})
		data := newAnswers()
		for i := range int64(records) {
			if err := db.Set(key(i), data.of(int(i)), pebble.NoSync); err != nil {
				b.Fatal(err)
			}
		}
		if err := db.Compact(b.Context(), []byte{0}, bytes.Repeat([]byte{0xff}, 33), false); err != nil {
			b.Fatal(err)
		}
		slow.Store(true)
		return func(n int64) {
			_, closer, err := db.Get(key(n * 31))
			if err != nil {
				b.Error(err)
				return
			}
			if err := closer.Close(); err != nil {
				b.Error(err)
			}
		}
	}
	turns.Worth(b, 4, reads(blockSize), reads(4<<10))
}

// BenchmarkDueMark shows what it is worth to a sweep that finds nothing, after ten thousand
// records were purged.
func BenchmarkDueMark(b *testing.B) {
	s := onDisk(b, 0)
	refs := make([]store.Ref, 10_000)
	for i := range refs {
		rec := testRecord(testID(fmt.Sprint(i)), 1, semel.Processing)
		refs[i] = store.Ref{ID: rec.ID, Revision: rec.Revision}
		if _, applied, err := s.Apply(b.Context(), store.Write{Record: new(rec)}); !applied || err != nil {
			b.Fatal(applied, err)
		}
	}
	if n, err := s.Purge(b.Context(), refs); n != len(refs) || err != nil {
		b.Fatal(n, err)
	}
	sweep := func(int64) {
		if page, err := s.Due(b.Context(), store.DueQuery{Until: farFuture, Limit: 100}); len(page.Records) > 0 || err != nil {
			b.Error(len(page.Records), err)
		}
	}
	sweep(0)
	turns.Worth(b, 1, sweep, func(n int64) {
		s.due.mu.Lock()
		s.due.low = 0
		s.due.mu.Unlock()
		sweep(n)
	})
}
