package pebblestore

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/cockroachdb/pebble/v2"
)

// logger stands between Pebble and the process.
type logger struct {
	*slog.Logger
	end func(message string)
}

// Infof and Errorf drop Pebble's messages about its daily work. Anything important comes as an
// event.
func (l *logger) Infof(string, ...any)  {}
func (l *logger) Errorf(string, ...any) {}

// Fatalf ends the process. Pebble calls it when a write or sync of its log or manifest has
// failed: after a failed sync nobody knows what is on the disk, and a second sync may report
// success for dropped data. All acknowledged writes are on disk, and the next Open finds them.
func (l *logger) Fatalf(format string, args ...any) {
	l.end(fmt.Sprintf(format, args...))
}

// exit ends the process when the store can't continue.
func exit(message string) {
	fmt.Fprintf(os.Stderr, "pebblestore: the disk can no longer be trusted, so the process ends and nothing more is acknowledged: %s\n", message)
	os.Exit(1)
}

// write puts a batch in the log. A failure ends the process: part of the batch may be in the
// log, later batches may or may not follow it there, and only the next Open can tell.
//
// A crash before the sync is done leaves all of the batch or nothing, and nobody got an answer.
// A crash after it leaves the batch.
func (l *logger) write(db *pebble.DB, b *pebble.Batch, m *meta) {
	// Pebble panics on some failures of its log.
	defer func() {
		if p := recover(); p != nil {
			l.Fatalf("write to the log: %v", p)
		}
	}()
	must(b.Set(metaKey, m.encode(), nil))
	if err := db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
		l.Fatalf("write to the log: %v", err)
	}
}

// sync waits until a batch is durable. It handles failures like write.
func (l *logger) sync(b *pebble.Batch) {
	if err := b.SyncWait(); err != nil {
		l.Fatalf("sync of the log: %v", err)
	}
}
