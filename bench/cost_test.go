package bench

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/turns"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

// meter measures one store, by the figures of whoever keeps its log.
type meter struct {
	// open opens the store; again after it was closed.
	open func(b *testing.B, at string) semel.Store
	// at is the address of the server, and far dials it; empty and nil without a server.
	at  string
	far func() (net.Conn, error)
	// address makes the address of the server behind a network.
	address func(network string) string
	// log says what the log and the records have taken so far. The store is closed.
	log func(b *testing.B) logged
	// cpu is what the server has used so far; nil without one.
	cpu func() time.Duration
}

// logged is what a store has written; negative where nobody tells.
type logged struct {
	bytes, syncs int64 // of the log
	kept         int64 // bytes of the records with their indexes, on disk or in Redis in memory
}

// BenchmarkCost counts what calls cost on each store, one caller at a time and -callers: bytes
// that the log grows by, syncs of the log, round trips to the server (a request that is sent
// after an answer has come), and processor time of this process and of the server. A pair is
// the begin and the complete of a new key, with an outcome of -bytes; a replay is the begin of a
// known one. -benchtime says how many: 2000x.
func BenchmarkCost(b *testing.B) {
	for _, kind := range []struct {
		name string
		make func(b *testing.B) meter
	}{{"memory", memoryMeter}, {"pebble", pebbleMeter}, {"postgres", postgresMeter}, {"redis", redisMeter}} {
		b.Run(kind.name, func(b *testing.B) {
			m := kind.make(b)
			for _, n := range []int{1, *callers} {
				b.Run("callers="+strconv.Itoa(n)+"/pair", func(b *testing.B) { m.measure(b, n, "pair", (*target).execute) })
				b.Run("callers="+strconv.Itoa(n)+"/replay", func(b *testing.B) { m.measure(b, n, "replay", (*target).replay) })
			}
		})
	}
}

// measure opens the store three times. First it gets the records to replay. Then the calls are
// counted; a server tells some of what they did only when the store is closed. At last the same
// number of calls goes through a network in this process, which takes processor time itself.
func (m *meter) measure(b *testing.B, callers int, unit string, do func(*target, context.Context, *turns.Caller) error) {
	const known = 64
	t := m.target(b, m.at)
	t.fill(b, known)
	t.close(b)
	start := m.log(b)

	t = m.target(b, m.at)
	t.records = known
	var before time.Duration
	if m.cpu != nil {
		before = m.cpu()
	}
	used, began := turns.ProcessorTime(), time.Now()
	t.calls(b, callers, do)
	took, n := time.Since(began), float64(b.N)
	b.ReportMetric(float64(turns.ProcessorTime()-used)/n, "cpu-ns/"+unit)
	if m.cpu != nil {
		b.ReportMetric(float64(m.cpu()-before)/n, "server-cpu-ns/"+unit)
	}
	b.ReportMetric(n/took.Seconds(), unit+"s/s")
	b.ReportMetric(0, "ns/op")
	t.close(b)
	end := m.log(b)
	b.ReportMetric(float64(end.bytes-start.bytes)/n, "bytes/"+unit)
	if end.syncs >= 0 {
		b.ReportMetric(float64(end.syncs-start.syncs)/n, "syncs/"+unit)
	}
	if end.kept >= 0 {
		b.ReportMetric(float64(end.kept-start.kept)/n, "kept-bytes/"+unit)
	}

	trips := 0
	if m.far != nil {
		trips = m.roundTrips(b, func(at string) *target {
			t := m.target(b, at)
			t.records = known
			return t
		}, callers, do)
	}
	b.ReportMetric(float64(trips)/n, "roundtrips/"+unit)
}

// roundTrips counts those of the calls, not of opening the store.
func (m *meter) roundTrips(b *testing.B, open func(at string) *target, callers int, do func(*target, context.Context, *turns.Caller) error) int {
	network, err := faultnet.Listen(m.far)
	if err != nil {
		b.Fatal(err)
	}
	defer network.Close()
	t := open(m.address(network.Addr()))
	defer t.close(b)
	var begun atomic.Int64
	network.CutEach(func() faultnet.Cut {
		begun.Add(1)
		return faultnet.Cut{}
	})
	t.calls(b, callers, do)
	network.CutEach(nil)
	return int(begun.Load())
}

// target opens the store, with an engine.
func (m *meter) target(b *testing.B, at string) *target {
	b.Helper()
	st := m.open(b, at)
	e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: operation, MaxResult: max(*size, semel.DefaultMaxResult)}}})
	if err != nil {
		b.Fatal(err)
	}
	return &target{engine: e, store: st, result: outcome()}
}

func (t *target) close(b *testing.B) {
	b.Helper()
	if err := t.engine.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	if err := t.store.Close(); err != nil {
		b.Fatal(err)
	}
}

// fill completes known keys, unless they are completed.
func (t *target) fill(b *testing.B, n int) {
	b.Helper()
	for i := range n {
		ans, err := t.engine.Begin(b.Context(), call(known(i)))
		if err == nil && ans.Decision == semel.Execute {
			err = ans.Attempt.Complete(b.Context(), semel.Result{Data: t.result})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// calls makes b.N calls.
func (t *target) calls(b *testing.B, callers int, do func(*target, context.Context, *turns.Caller) error) {
	b.Helper()
	var made atomic.Int64
	group, ctx := errgroup.WithContext(b.Context())
	for i := range callers {
		group.Go(func() error {
			c := turns.NewCaller(i)
			for made.Add(1) <= int64(b.N) {
				if err := do(t, ctx, c); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

// lasting is a store in memory that is opened again.
type lasting struct{ *memstore.Store }

func (lasting) Close() error { return nil }

func memoryMeter(*testing.B) meter {
	st := lasting{memstore.New()}
	return meter{
		open: func(*testing.B, string) semel.Store { return st },
		log:  func(*testing.B) logged { return logged{kept: -1} },
	}
}

func pebbleMeter(b *testing.B) meter {
	dir, fs := b.TempDir(), logFS{vfs.Default, new(atomic.Int64), new(atomic.Int64)}
	return meter{
		open: func(b *testing.B, _ string) semel.Store {
			return must(pebblestore.Open(dir, &pebblestore.Options{FS: fs}))(b)
		},
		log: func(*testing.B) logged { return logged{fs.written.Load(), fs.synced.Load(), -1} },
	}
}

// logFS counts what is written to logs, and how often they are synced.
type logFS struct {
	vfs.FS
	written, synced *atomic.Int64
}

func (fs logFS) Create(name string, kind vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, kind)
	return fs.counted(name, f), err
}

func (fs logFS) ReuseForWrite(old, name string, kind vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(old, name, kind)
	return fs.counted(name, f), err
}

func (fs logFS) counted(name string, f vfs.File) vfs.File {
	if f == nil || !strings.HasSuffix(name, ".log") {
		return f
	}
	return logFile{f, fs}
}

type logFile struct {
	vfs.File
	fs logFS
}

func (f logFile) Write(p []byte) (int, error) {
	f.fs.written.Add(int64(len(p)))
	return f.File.Write(p)
}

func (f logFile) Sync() error {
	f.fs.synced.Add(1)
	return f.File.Sync()
}

func (f logFile) SyncData() error {
	f.fs.synced.Add(1)
	return f.File.SyncData()
}

// postgresMeter has a server to itself, because it counts the server's log.
func postgresMeter(b *testing.B) meter {
	s := pgtest.Start(b, nil)
	database := s.Database(b)
	var version string
	if err := s.Conn(b, "postgres").QueryRow(b.Context(), "SHOW server_version").Scan(&version); err != nil {
		b.Fatal(err)
	}
	fmt.Println("postgres:", strings.Fields(version)[0])
	return meter{
		open: func(b *testing.B, at string) semel.Store {
			return must(pgstore.Open(b.Context(), at, &pgstore.Options{Migrate: true, AcquireTimeout: semel.DefaultStoreTimeout}))(b)
		},
		at:      s.URL(database),
		far:     func() (net.Conn, error) { return net.Dial("unix", s.Dir+"/.s.PGSQL.5432") },
		address: func(at string) string { return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", at, database) },
		log: func(b *testing.B) (l logged) {
			// Connections tell what they have synced when they end.
			s.Await(b, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = '`+database+`')`)
			err := s.Conn(b, "postgres").QueryRow(b.Context(), `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, wal_sync, pg_database_size($1) FROM pg_stat_wal`, database).Scan(&l.bytes, &l.syncs, &l.kept)
			if err != nil {
				b.Fatal(err)
			}
			return l
		},
		cpu: s.CPU,
	}
}

// redisMeter can't tell syncs: Redis counts none. It syncs before it answers, once for all
// requests that it has read together.
func redisMeter(b *testing.B) meter {
	s := redistest.Start(b, "always", "auto-aof-rewrite-percentage", "0")
	_, version, _ := strings.Cut(s.Do("INFO", "server"), "redis_version:")
	fmt.Println("redis:", strings.Fields(version)[0])
	return meter{
		open: func(b *testing.B, at string) semel.Store {
			return must(redisstore.Open(b.Context(), at, nil))(b)
		},
		at:      s.URL(),
		far:     func() (net.Conn, error) { return net.Dial("tcp", s.Addr) },
		address: func(at string) string { return "redis://" + at },
		log: func(b *testing.B) logged {
			return logged{figure(b, s, "persistence", "aof_current_size"), -1, figure(b, s, "memory", "used_memory")}
		},
		cpu: s.CPU,
	}
}

// figure is a number in a section of INFO.
func figure(b *testing.B, s *redistest.Server, section, name string) (n int64) {
	b.Helper()
	_, rest, _ := strings.Cut(s.Do("INFO", section), "\n"+name+":")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		b.Fatal(err)
	}
	return n
}

// must returns what was made, or ends the benchmark.
func must[T any](made T, err error) func(b *testing.B) T {
	return func(b *testing.B) T {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
		return made
	}
}
