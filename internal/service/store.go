package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of databases that are asked about held calls
	"github.com/semelhq/semel"
	"github.com/semelhq/semel/archive"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

// OpenStore opens the store that a configuration names: "pebble:" and a directory, a postgres,
// redis or redis-cluster URL, or "memory:". With the profile strict it refuses a store with
// unsafe live settings, and says why for each. The context bounds opening.
func OpenStore(ctx context.Context, c config.Store) (semel.Store, error) {
	return openStoreWith(ctx, c, &pebblestore.Options{})
}

// LookAtStore opens a store for reading only. It leaves a directory as it is, and reads
// it even on a full disk. It ignores the profile, because reading needs no durability.
func LookAtStore(ctx context.Context, c config.Store) (semel.Store, error) {
	c.Profile, c.Migrate = "standard", false
	return openStoreWith(ctx, c, &pebblestore.Options{ReadOnly: true})
}

// LookAtEvidence opens the evidence log of a store for reading only, to find entries. Nil: no keys
// are configured.
func LookAtEvidence(c *config.Evidence, st semel.Store) (*evidence.Log, error) {
	if c.KeyFile == "" {
		return nil, nil
	}
	keys, _, err := evidenceKeys(c)
	if err != nil {
		return nil, err
	}
	return evidence.LookAt(st, keys)
}

func openStoreWith(ctx context.Context, c config.Store, embedded *pebblestore.Options) (st semel.Store, err error) {
	switch scheme, rest, _ := strings.Cut(c.URL, ":"); {
	case scheme == "pebble" && rest == "":
		err = errors.New("pebble: needs a directory, such as pebble:./semel-data")
	case scheme == "pebble":
		embedded.Strict = c.Profile == "strict"
		st, err = pebblestore.OpenContext(ctx, rest, embedded)
	case scheme == "memory":
		st = memstore.New()
	case scheme == "postgres", scheme == "postgresql":
		st, err = pgstore.Open(ctx, c.URL, &pgstore.Options{Schema: c.Schema, Migrate: c.Migrate})
	case c.Redis():
		st, err = redisstore.Open(ctx, c.URL, &redisstore.Options{Prefix: c.Prefix, AcceptLoss: c.AcceptLoss})
	default:
		err = errors.New("the URL names no known kind of store; there are pebble, postgres, redis, redis-cluster, redis-sentinel and memory")
	}
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if c.Profile != "strict" {
		return st, nil
	}
	d, err := DurabilityOf(ctx, st)
	if err == nil && len(d.Unsafe) > 0 {
		err = fmt.Errorf("store: the strict profile refuses it: %s", strings.Join(d.Unsafe, "; "))
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return st, nil
}

// checkStore reports why [OpenStore] would refuse a store before it connects to it.
func checkStore(c config.Store) error {
	dir, embedded := strings.CutPrefix(c.URL, "pebble:")
	switch {
	case embedded:
		return canBeDirectory(dir)
	case strings.HasPrefix(c.URL, "postgres"):
		return pgstore.Check(c.URL, &pgstore.Options{Schema: c.Schema})
	case c.Redis():
		return redisstore.Check(c.URL, &redisstore.Options{Prefix: c.Prefix})
	}
	return nil
}

// OpenArchive opens the archive that a configuration names, for the records of a store.
// It returns a function for [semel.Options].Archive, and a closer, which is nil if the
// archive closes with the store.
func OpenArchive(c config.Archive, st semel.Store) (write func(context.Context, []semel.Record) error, close io.Closer, err error) {
	if c.In == "store" {
		a := st.Extras().Archive
		if a == nil {
			return nil, nil, errors.New("archive: the store has no table for it: write files to archive.in, or use a postgres:// store")
		}
		return a.Archive, nil, nil
	}
	files, err := archive.Open(c.Dir)
	if err != nil {
		return nil, nil, err
	}
	return files.Write, files, nil
}

// DurabilityOf is what a store promises by its live settings. A store that can't tell
// promises nothing beyond the process.
func DurabilityOf(ctx context.Context, st semel.Store) (store.Durability, error) {
	ds := st.Extras().Durability
	if ds == nil {
		return store.Durability{Level: store.LevelProcess, Unsafe: []string{"the store can't tell what it promises: assume that it forgets everything"}}, nil
	}
	d, err := ds.Durability(ctx)
	if err != nil {
		return d, fmt.Errorf("store: its durability can't be read: %w", err)
	}
	return d, nil
}
