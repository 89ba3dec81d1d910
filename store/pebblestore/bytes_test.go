package pebblestore

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// volume is how many bytes have been written so far.
type volume struct {
	log, tables uint64 // to the log; to tables, by writing memory out and by merging
	process     uint64 // by the calls of this process to write, to whatever file
	disk        uint64 // to the disk for this process, in whole pages
}

func bytesWritten(t testing.TB, s *Store) (w volume) {
	t.Helper()
	m := s.db.Metrics()
	total := m.Total()
	w.log, w.tables = m.WAL.BytesWritten, total.TableBytesFlushed+total.TableBytesCompacted-m.WAL.BytesWritten
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return w // only Linux has it
	}
	for line := range strings.Lines(string(text)) {
		name, n, _ := strings.Cut(line, ": ")
		switch name {
		case "wchar":
			_, err = fmt.Sscan(n, &w.process)
		case "write_bytes":
			_, err = fmt.Sscan(n, &w.disk)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// share returns what was written since before, for each of n calls.
func (w volume) share(before volume, n int) volume {
	return volume{
		(w.log - before.log) / uint64(n), (w.tables - before.tables) / uint64(n),
		(w.process - before.process) / uint64(n), (w.disk - before.disk) / uint64(n),
	}
}

// A first call, which is two durable writes, adds to the log little more than its answer and
// the digest of its request, and a replay adds nothing. The process writes nothing else, until
// it writes a memory table out.
//
// The disk writes more: a sync writes whole pages. A call that is alone has two syncs, so it
// costs two pages of 4 KiB and more, however short it is.
func TestWhatACallWrites(t *testing.T) {
	const digests = len(store.Digest{})
	for _, c := range []struct{ callers, calls, answer int }{{1, 500, 200}, {64, 2000, 200}, {1, 500, benchResult}, {64, 2000, benchResult}} {
		t.Run(fmt.Sprintf("%d callers, %d bytes", c.callers, c.answer), func(t *testing.T) {
			s := mustOpen(t, t.TempDir(), nil)
			defer s.Close()
			e, err := semel.New(s, &semel.Options{Node: "node-1", Operations: []semel.Operation{{Name: "payments.charge"}}})
			if err != nil {
				t.Fatal(err)
			}
			data := newAnswers()
			each := func(call func(i int) error) volume {
				before := bytesWritten(t, s)
				var next atomic.Int64
				var work sync.WaitGroup
				for range c.callers {
					work.Go(func() {
						for i := next.Add(1); i <= int64(c.calls); i = next.Add(1) {
							if err := call(int(i)); err != nil {
								t.Error(err)
							}
						}
					})
				}
				work.Wait()
				return bytesWritten(t, s).share(before, c.calls)
			}
			first := each(func(i int) error { return benchPair(t.Context(), e, i, data.of(i)[:c.answer]) })
			replay := each(func(i int) error {
				_, err := e.Begin(t.Context(), benchCall(i))
				return err
			})
			t.Logf("a first call writes %+v bytes, and a replay %+v", first, replay)
			// Whoever shares a batch writes less than a lone caller, so a busy machine, on which
			// fewer meet, changes nothing.
			if most := uint64(digests+c.answer)*13/10 + 1024; first.log > most {
				t.Errorf("a first call adds %d bytes to the log, want %d at most", first.log, most)
			}
			if most := uint64(digests+c.answer) + 800; first.log > most {
				t.Errorf("a first call adds %d bytes to the log beside its digest and its answer, want 800 at most", first.log-uint64(digests+c.answer))
			}
			// The test's process also has a list of the files that it opens, for go test. It writes
			// that in pieces of 4 KiB, at any time.
			list := 2 * uint64(4<<10/c.calls)
			if first.tables > 0 || first.process > first.log+list {
				t.Errorf("a first call writes %d bytes in all, and %d of them to the log", first.process, first.log)
			}
			if replay.log+replay.tables > 0 || max(replay.process, replay.disk) > list {
				t.Errorf("a replay writes %+v bytes", replay)
			}
		})
	}
}
