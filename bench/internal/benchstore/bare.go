package benchstore

import (
	"context"
	"crypto/sha256"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel/store/pebblestore"
)

// barePebble is Pebble without an engine: each operation writes two values under one key,
// and syncs each. The values are as large as the claim and the outcome that the engine
// writes, and the key is as long. It checks nothing, indexes nothing and reads nothing.
type barePebble struct {
	db    *pebble.DB
	data  values
	names *target // gives new keys
}

// openBarePebble opens a database with the settings of the embedded store.
func openBarePebble(dir string, t *target, s sample) (loop, error) {
	data, err := s.values()
	if err != nil {
		return nil, err
	}
	db, err := pebble.Open(dir, pebblestore.PebbleOptions(nil))
	if err != nil {
		return nil, err
	}
	return &barePebble{db, data, t}, nil
}

// execute does the two synced writes.
func (b *barePebble) execute(_ context.Context, c *caller) error {
	sum := sha256.Sum256([]byte(b.names.newKey(c)))
	key := append(c.buf[:0], 'r')
	key = append(key, sum[:]...)
	if err := b.db.Set(key, b.data.claim, pebble.Sync); err != nil {
		return err
	}
	return b.db.Set(key, b.data.outcome, pebble.Sync)
}

func (b *barePebble) close() error { return b.db.Close() }
