package pebblestore

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/cockroachdb/pebble/v2"
)

// logger stands between Pebble and the process.
type logger struct {
	slog *slog.Logger
	end  func(message string)
}

// Infof and Errorf are what Pebble says about its daily work; what matters comes
// as an event.
func (l *logger) Infof(string, ...any)  {}
func (l *logger) Errorf(string, ...any) {}

// Fatalf is what Pebble calls when a write or sync of its log or manifest has
// failed. It ends the process: after a failed sync nobody knows what the disk
// holds, and a second sync may say "done" about data that were dropped. What
// was acknowledged is on disk; the next Open finds it.
func (l *logger) Fatalf(format string, args ...any) {
	l.end(fmt.Sprintf(format, args...))
}

func (l *logger) trouble(msg string, args ...any) {
	if l.slog != nil {
		l.slog.Error(msg, args...)
	}
}

// exit is how the process ends when the store can't go on.
func exit(message string) {
	fmt.Fprintf(os.Stderr, "pebblestore: the disk can no longer be trusted, so the process ends and nothing more is acknowledged: %s\n", message)
	os.Exit(1)
}

// write puts a batch in the log. A failure ends the process: part of the batch
// may be in the log, later batches may or may not follow it there, and only the
// next Open can tell.
//
// A crash before the sync is done leaves the whole batch or nothing of it, and
// nobody was answered. A crash after it leaves the batch.
func (l *logger) write(db *pebble.DB, b *pebble.Batch, m meta) {
	// Pebble panics on some failures of its log.
	defer func() {
		if p := recover(); p != nil {
			l.Fatalf("write to the log: %v", p)
		}
	}()
	add := b.SetDeferred(len(metaKey), metaLen)
	copy(add.Key, metaKey)
	m.put(add.Value)
	finish(add)
	if err := db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
		l.Fatalf("write to the log: %v", err)
	}
}

// apply puts a batch in the log that nobody waits for. For a failure see write.
func (l *logger) apply(db *pebble.DB, b *pebble.Batch) {
	defer func() {
		if p := recover(); p != nil {
			l.Fatalf("write to the log: %v", p)
		}
	}()
	if err := db.Apply(b, pebble.NoSync); err != nil {
		l.Fatalf("write to the log: %v", err)
	}
}

// sync waits until a batch is durable. For a failure see write.
func (l *logger) sync(b *pebble.Batch) {
	if err := b.SyncWait(); err != nil {
		l.Fatalf("sync of the log: %v", err)
	}
}
