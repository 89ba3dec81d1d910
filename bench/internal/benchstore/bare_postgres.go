package benchstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/pgstore"
)

// postgres keeps each store in a schema of its own.
type postgres struct {
	url, base string
	mu        sync.Mutex
	made      []string
}

func newPostgres(url string) *postgres { return &postgres{url: url, base: newSpace()} }

// schema names a schema that this run has to remove.
func (p *postgres) schema(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	schema := p.base + "_" + name
	if !slices.Contains(p.made, schema) {
		p.made = append(p.made, schema)
	}
	return schema
}

func (p *postgres) open(ctx context.Context, name string) (semel.Store, error) {
	// Some callers wait longer than the service would let them; that is part of the load.
	return pgstore.Open(ctx, p.url, &pgstore.Options{Schema: p.schema(name), Migrate: true, AcquireTimeout: semel.DefaultStoreTimeout})
}

func (p *postgres) title() string { return "one statement per transition" }
func (p *postgres) space() string { return p.base }

func (p *postgres) close(keep bool) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if keep || len(p.made) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return err
	}
	for _, schema := range p.made {
		_, derr := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{schema}.Sanitize()+" CASCADE")
		err = errors.Join(err, derr)
	}
	return errors.Join(err, conn.Close(ctx))
}

// BareConns is how many connections the loop on PostgreSQL has, if there are as many
// callers.
const BareConns = 16

// barePostgres does what a program without an engine does: one prepared statement for the
// claim and one for its outcome, each a transaction of one row, in a table with the
// columns and indexes of the store's. The record is as large as the engine's.
type barePostgres struct {
	pool           *pgxpool.Pool
	insert, update string
	names          *target
	sample         sample
	claim, outcome []byte
	request        string
}

func (p *postgres) bare(ctx context.Context, t *target, s sample) (loop, error) {
	data, err := s.values()
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(p.url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = BareConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	schema := p.schema("bare")
	if _, err := pgstore.Migrate(ctx, pool, schema); err != nil {
		pool.Close()
		return nil, err
	}
	table := pgx.Identifier{schema, "idempotency_log"}.Sanitize()
	b := &barePostgres{pool: pool, names: t, sample: s, claim: data.claim}
	// The result has a column of its own.
	b.outcome = data.outcome[:len(data.outcome)-len(s.outcome.Result.Data)]
	b.request = s.claim.Fingerprint.String()
	b.insert = `INSERT INTO ` + table + ` (id, revision, record, next_at, held, request_payload, response_payload, status,
		created_at, updated_at, expires_at, since, idempotency_key, operation_type, user_id, session_id)
		VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16) ON CONFLICT (id) DO NOTHING`
	b.update = `UPDATE ` + table + ` SET revision = $3, record = $4, next_at = $5, response_payload = $6, status = $7,
		updated_at = $8, expires_at = $9 WHERE id = $1 AND revision = $2`
	return b, nil
}

// execute claims a new key and completes it.
func (b *barePostgres) execute(ctx context.Context, c *caller) error {
	key := b.names.newKey(c)
	id := sha256.Sum256([]byte(key))
	var before, after store.Revision
	binary.BigEndian.PutUint64(before[:], c.serial)
	binary.BigEndian.PutUint64(after[:], c.serial)
	after[15] = 1
	claim, outcome := &b.sample.claim, &b.sample.outcome
	at := claim.CreatedAt.Time()
	tag, err := b.pool.Exec(ctx, b.insert, id[:], before[:], b.claim, int64(claim.NextAt), false, b.request, nil, claim.State.String(),
		at, at, nil, int64(claim.CreatedAt), key, claim.ID.Operation, claim.ID.Principal, claim.ID.Tenant)
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("a new key was there already")
	}
	if err != nil {
		return fmt.Errorf("insert: %w", err)
	}
	tag, err = b.pool.Exec(ctx, b.update, id[:], before[:], after[:], b.outcome, int64(outcome.NextAt), outcome.Result.Data,
		outcome.State.String(), outcome.UpdatedAt.Time(), outcome.ExpiresAt.Time())
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("the claim was gone")
	}
	if err != nil {
		return fmt.Errorf("update: %w", err)
	}
	return nil
}

func (b *barePostgres) close() error {
	b.pool.Close()
	return nil
}
