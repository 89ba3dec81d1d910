package benchstore

import (
	"context"
	"crypto/sha256"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel/internal/recordcodec"
	"github.com/semelhq/semel/store/pebblestore"
)

// bare is Pebble without an engine: each operation writes two values under one
// key, and syncs each. The values are as large as the claim and the outcome that
// the engine writes, and the key is as long. It checks nothing, indexes nothing
// and reads nothing.
type bare struct {
	db             *pebble.DB
	claim, outcome []byte
	names          *target // gives new keys
}

// openBare opens a database with the settings of the embedded store.
func openBare(dir string, t *target, s sample) (*bare, error) {
	b := &bare{names: t}
	var err error
	if b.claim, err = recordcodec.Append(nil, &s.claim); err != nil {
		return nil, err
	}
	if b.outcome, err = recordcodec.Append(nil, &s.outcome); err != nil {
		return nil, err
	}
	opts := pebblestore.PebbleOptions(nil)
	b.db, err = pebble.Open(dir, opts)
	return b, err
}

// execute does the two synced writes.
func (b *bare) execute(_ context.Context, c *caller) error {
	sum := sha256.Sum256([]byte(b.names.newKey(c)))
	key := append(c.buf[:0], 'r')
	key = append(key, sum[:]...)
	if err := b.db.Set(key, b.claim, pebble.Sync); err != nil {
		return err
	}
	return b.db.Set(key, b.outcome, pebble.Sync)
}

func (b *bare) close() error { return b.db.Close() }
