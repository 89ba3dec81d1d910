package pebblestore

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/wal"

	"github.com/semelhq/semel/internal/rig/thorough"
)

// pebbleReads reads a log by the reader with which Pebble replays it.
func (r *walRig) pebbleReads(t *testing.T, content []byte) (batches []uint64, end int, err error) {
	t.Helper()
	put(t, r.store.fs, "store", r.name, content)
	logs, err := wal.Scan(wal.Dir{FS: r.store.fs, Dirname: "store"})
	if err != nil {
		t.Fatal(err)
	}
	n, _, _ := wal.ParseLogFilename(r.name)
	log, _ := logs.Get(n)
	reader := log.OpenForRead()
	defer reader.Close()
	for {
		rec, at, err := reader.NextRecord()
		if err != nil {
			return batches, int(at.Physical), err
		}
		content, err := io.ReadAll(rec)
		p, ok := parseProgress(content)
		if err != nil || !ok {
			t.Fatalf("after batch %d Pebble reads %x, %v", len(batches), content, err)
		}
		batches = append(batches, p.number)
	}
}

// Pebble reads the same of a log as the store does, whatever happened to it. If that ends with
// a new version of Pebble, the format of the log has changed: see ADR 24.
//
// And Pebble takes damage for the end of the log. If that ends, the store needs no reader of
// its own any more.
func TestPebbleReadsTheSame(t *testing.T) {
	if formatVersion < pebble.FormatWALSyncChunks {
		t.Fatalf("logs of format %v have chunks of another form", formatVersion)
	}
	seed := newSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	taken := 0
	for _, r := range []*walRig{newWALRig(t, oneAfterTheOther(t, 40)), newWALRig(t, atOnce(t, 10))} {
		// Few trials show that damage is taken for an end, so there are more until one does.
		for trial := 0; trial < thorough.Scaled(60) || taken == 0 && trial < 2000; trial++ {
			c := slices.Clone(r.content)
			at := rng.IntN(len(c))
			switch {
			case trial == 0: // nothing happened
			case trial%2 == 0:
				c[at] ^= byte(1 + rng.IntN(255))
			default:
				c = c[:at]
			}
			log := r.scan(t, c)
			batches, end, err := r.pebbleReads(t, c)
			first, last := uint64(0), uint64(0)
			if len(batches) > 0 {
				first, last = batches[0], batches[len(batches)-1]
			}
			if first != log.first || last != log.last || log.gap || len(batches) != int(last-first)+min(1, len(batches)) {
				t.Fatalf("trial %d, changed at byte %d: Pebble reads batches %d, and the store those from %d to %d", trial, at, batches, log.first, log.last)
			}
			if end != log.end {
				t.Fatalf("trial %d, changed at byte %d: for Pebble the last batch ends at byte %d, and for the store at %d", trial, at, end, log.end)
			}
			if len(c) == len(r.content) && last < r.promise && (errors.Is(err, io.EOF) || errors.Is(err, record.ErrUnexpectedEOF)) {
				taken++
			}
		}
	}
	if taken == 0 {
		t.Error("Pebble tells damage from the end of a log")
	}
	t.Logf("Pebble took damage for an end %d times", taken)
}
