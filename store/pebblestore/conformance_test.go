package pebblestore

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store/storetest"
)

func TestContractInMemory(t *testing.T) {
	storetest.Run(t, storetest.Virtual("pebblestore in memory", func(t *testing.T) storetest.Env {
		return openEnv(t, "store", &Options{FS: vfs.NewMem(), MemTableBytes: smallTables})
	}))
}

func TestContractInADirectory(t *testing.T) {
	thorough.Only(t, "the contract in memory, on the disk of the machine")
	storetest.Run(t, storetest.Virtual("pebblestore in a directory", func(t *testing.T) storetest.Env {
		return openEnv(t, t.TempDir(), &Options{MemTableBytes: smallTables})
	}))
}

// smallTables makes tests write tables, and compact them, within a few hundred
// records.
const smallTables = 256 << 10

// openEnv opens a store that the suite can open again.
func openEnv(t *testing.T, dir string, opts *Options) storetest.Env {
	t.Helper()
	var leapt atomic.Int64
	opts.time = systemTime()
	now := opts.time.now
	opts.time.now = func() offsetclock.Moment {
		m := now()
		m.Wall += time.Duration(leapt.Load())
		return m
	}
	s := mustOpen(t, dir, opts)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return storetest.Env{Store: s, Leap: func(by time.Duration) { leapt.Add(int64(by)) }, Reopen: func() semel.Store {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		s = mustOpen(t, dir, opts)
		return s
	}}
}

func mustOpen(t testing.TB, dir string, opts *Options) *Store {
	t.Helper()
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
