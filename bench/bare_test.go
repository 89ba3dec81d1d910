package bench

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"

	"github.com/semelhq/semel/internal/rig/turns"
	"github.com/semelhq/semel/store/codec"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

// values are a claim and its outcome as the engine encodes them.
func (t *target) values(b *testing.B) (claim, outcome []byte) {
	b.Helper()
	c, o := t.sample(b)
	claim, err := codec.Append(nil, &c)
	if err != nil {
		b.Fatal(err)
	}
	if outcome, err = codec.Append(nil, &o); err != nil {
		b.Fatal(err)
	}
	return claim, outcome
}

// barePebble is Pebble without an engine, with the settings of the embedded store: each
// operation writes two values under one key, and syncs each. They and the key are as large
// as the engine's. It checks nothing, indexes nothing and reads nothing.
func barePebble(b *testing.B, t *target) step {
	claim, outcome := t.values(b)
	db, err := pebble.Open(filepath.Join(b.TempDir(), "bare"), pebblestore.PebbleOptions(nil))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return func(_ context.Context, c *turns.Caller) error {
		sum := sha256.Sum256([]byte(c.Key()))
		key := append([]byte{'r'}, sum[:]...)
		if err := db.Set(key, claim, pebble.Sync); err != nil {
			return err
		}
		return db.Set(key, outcome, pebble.Sync)
	}
}

// bareConns is how many connections the loop on PostgreSQL has, if there are as many
// callers.
const bareConns = 16

// barePostgres does what a program without an engine does: one prepared statement for the
// claim and one for its outcome, each a transaction of one row, in a table with the
// columns and indexes of the store's. The record is as large as the engine's.
func barePostgres(b *testing.B, url string, t *target) step {
	claimed, completed := t.sample(b)
	claim, outcome := t.values(b)
	outcome = outcome[:len(outcome)-len(t.result)] // the result has a column of its own
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns = bareConns
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if _, err := pgstore.Migrate(b.Context(), pool, "bare"); err != nil {
		b.Fatal(err)
	}
	table := pgx.Identifier{"bare", "semel_records"}.Sanitize()
	insert := `INSERT INTO ` + table + ` (id, revision, record, next_at, held, fingerprint, result, state,
		created_at, updated_at, expires_at, since, key, operation, principal, tenant)
		VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16) ON CONFLICT DO NOTHING`
	update := `UPDATE ` + table + ` SET revision = $3, record = $4, next_at = $5, result = $6, state = $7,
		updated_at = $8, expires_at = $9 WHERE id = $1 AND revision = $2`
	request, at := claimed.Fingerprint.String(), claimed.CreatedAt.Time()
	return func(ctx context.Context, c *turns.Caller) error {
		key := c.Key()
		id := sha256.Sum256([]byte(key))
		before, after := id[:16], id[16:] // revisions
		tag, err := pool.Exec(ctx, insert, id[:], before, claim, int64(claimed.NextAt), false, request, nil, claimed.State.String(),
			at, at, nil, int64(claimed.CreatedAt), key, claimed.ID.Operation, claimed.ID.Principal, claimed.ID.Tenant)
		if err != nil || tag.RowsAffected() != 1 {
			return errors.Join(fmt.Errorf("insert of %d rows", tag.RowsAffected()), err)
		}
		tag, err = pool.Exec(ctx, update, id[:], before, after, outcome, int64(completed.NextAt), completed.Result.Data,
			completed.State.String(), completed.UpdatedAt.Time(), completed.ExpiresAt.Time())
		if err != nil || tag.RowsAffected() != 1 {
			return errors.Join(fmt.Errorf("update of %d rows", tag.RowsAffected()), err)
		}
		return nil
	}
}

// bareRedis is Redis without an engine: SET NX of the claim, and SET of the outcome under
// the same key, through a client with the store's settings, which batches the requests of
// concurrent callers. Values and keys are as large as the engine's. It checks no revision
// and keeps no index.
func bareRedis(b *testing.B, url string, t *target) step {
	claim, outcome := t.values(b)
	client, err := redisstore.Connect(url, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	prefix := "bare-" + rand.Text()[:8] + ":{"
	return func(ctx context.Context, c *turns.Caller) error {
		sum := sha256.Sum256([]byte(c.Key()))
		slot := strconv.Itoa(int(sum[0] % 64)) // spreads the keys in a Cluster
		key := prefix + slot + "}:r:" + string(sum[:])
		err := client.Do(ctx, client.B().Set().Key(key).Value(rueidis.BinaryString(claim)).Nx().Build()).Error()
		if rueidis.IsRedisNil(err) {
			return errors.New("a new key was there already")
		}
		if err != nil {
			return err
		}
		return client.Do(ctx, client.B().Set().Key(key).Value(rueidis.BinaryString(outcome)).Build()).Error()
	}
}
