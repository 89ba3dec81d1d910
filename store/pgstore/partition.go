package pgstore

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// In the partitioned layout the record and its identity stay in idempotency_log,
// where the primary key makes a claim atomic. Only the bytes of a result, which are
// most of what there is to delete, are in idempotency_result, in the partition of
// the period in which they expire. An expired record is deleted as a row, as ever;
// its result goes with its partition, once no record refers to that.
//
// A result is written in the statement that completes its record, and belongs to
// that version of it: it is looked for by the revision. One whose record has
// changed or gone since is in nobody's way, and goes with the others. A result that
// is missed is noticed by the record's checksum, and the call is refused.

//go:embed partition.sql
var partitionSQL string

const (
	resultTable    = "idempotency_result"
	partitionTable = "semel_partition"

	// minPartition bounds the length of a period from below.
	minPartition = time.Minute
	// aheadPartitions is how many periods ahead a result may expire that is kept
	// apart. Each has a partition, and each partition costs every statement a
	// little. A result that expires later stays in its record's row.
	aheadPartitions = 64
	// apartBytes is the size from which on a result is kept apart. A smaller one
	// costs less in the row.
	apartBytes = 256
)

// ErrPartition is what [Open] and [Partition] return, wrapped, where a schema has
// partitions of another length than asked for, or none.
var ErrPartition = errors.New("the schema is partitioned otherwise")

// Partition has a schema keep results in partitions, one for each period of the
// given length in which they expire: see [Options].Partition. The schema must be
// migrated. Results that are there already stay in their rows. Where the schema has
// such partitions already it does nothing, and where it has others it fails with
// [ErrPartition].
//
// Stores that are open do not notice, and refuse calls whose result is kept apart
// as damaged: open them again. The schema is changed as a whole or stays as it was.
func Partition(ctx context.Context, pool *pgxpool.Pool, schema string, period time.Duration) error {
	schema = cmp.Or(schema, DefaultSchema)
	if err := partition(ctx, pool, schema, period); err != nil {
		return fmt.Errorf("pgstore: partition schema %q: %w", schema, err)
	}
	return nil
}

func partition(ctx context.Context, pool *pgxpool.Pool, schema string, period time.Duration) error {
	if err := checkPeriod(period); err != nil {
		return err
	}
	// A crash before the commit leaves the schema as it was.
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := lockSchema(ctx, tx, schema); err != nil {
			return err
		}
		if err := checkSchema(ctx, tx, schema); err != nil {
			return err
		}
		has, err := periodOf(ctx, tx, schema)
		if err != nil || has == period {
			return err
		}
		if has != 0 {
			return fmt.Errorf("%w: by %v, not %v", ErrPartition, has, period)
		}
		if _, err := tx.Exec(ctx, "SELECT set_config('search_path', $1, true)", quote(schema)); err != nil {
			return err
		}
		_, err = tx.Conn().PgConn().Exec(ctx, partitionSQL+insertPeriod(period)).ReadAll()
		return err
	})
}

// PrintPartition writes the SQL of [Partition], for those who run it by other means.
func PrintPartition(w io.Writer, schema string, period time.Duration) error {
	if err := checkPeriod(period); err != nil {
		return fmt.Errorf("pgstore: %w", err)
	}
	_, err := fmt.Fprintf(w, "BEGIN;\nSET LOCAL search_path = %s;\n\n%s%s\nCOMMIT;\n", quote(cmp.Or(schema, DefaultSchema)), partitionSQL, insertPeriod(period))
	return err
}

func insertPeriod(period time.Duration) string {
	return fmt.Sprintf("INSERT INTO %s VALUES (%d);", partitionTable, int64(period/time.Second))
}

func checkPeriod(period time.Duration) error {
	if period < minPartition || period%time.Second != 0 {
		return fmt.Errorf("a partition is at least %v long, in whole seconds", minPartition)
	}
	return nil
}

// periodOf is the length of a schema's partitions; zero if it has none.
func periodOf(ctx context.Context, q querier, schema string) (time.Duration, error) {
	table := name(schema, partitionTable)
	var exists bool
	if err := q.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&exists); err != nil || !exists {
		return 0, err
	}
	var seconds int64
	err := q.QueryRow(ctx, "SELECT seconds FROM "+table).Scan(&seconds)
	return time.Duration(seconds) * time.Second, err
}

// lookAtLayout finds out how the schema keeps results, and makes it keep them as
// the options say where these allow that.
func (s *Store) lookAtLayout(ctx context.Context) (err error) {
	want := s.opts.Partition
	if want != 0 && s.opts.Migrate {
		if err := partition(ctx, s.reads, s.opts.Schema, want); err != nil {
			return err
		}
	}
	if s.period, err = periodOf(ctx, s.reads, s.opts.Schema); err != nil {
		return err
	}
	switch {
	case want != 0 && s.period == 0:
		return fmt.Errorf("%w: it has no partitions: run semel migrate up --partition=%v, or set Options.Migrate", ErrPartition, want)
	case want != 0 && s.period != want:
		return fmt.Errorf("%w: by %v, not %v", ErrPartition, s.period, want)
	}
	return nil
}

// resultColumn is what the statements of the plain layout read a result from.
const resultColumn = "l.response_payload"

// result is what a result is read from, of a row l of the log.
func (s *Store) result() string {
	if s.period == 0 {
		return resultColumn
	}
	return "coalesce(" + resultColumn + ", (SELECT r.response_payload FROM " + name(s.opts.Schema, resultTable) +
		" r WHERE r.bucket = l.result_bucket AND r.id = l.id AND r.revision = l.revision))"
}

// partitioned are the statements of the partitioned layout. They have the
// parameters of the others and give the same rows. What creates a record keeps its
// result in the row, for a claim has none.
func (s *Store) partitioned(plain statements, lockTimeout time.Duration) statements {
	log, results := name(s.opts.Schema, "idempotency_log"), name(s.opts.Schema, resultTable)
	p := plain
	for _, t := range []*text{&p.create, &p.create1, &p.noted.create, &p.noted.create1, &p.get, &p.due} {
		t.any = strings.ReplaceAll(t.any, resultColumn, s.result())
		t.direct = strings.ReplaceAll(t.direct, resultColumn, s.result())
	}
	change := slices.Concat(versionMembers, expectMember, deadlineMember)
	limit := ", set_config('lock_timeout', '" + milliseconds(lockTimeout) + "', true)"
	bucket := func(at string) string {
		return fmt.Sprintf("floor(date_part('epoch', %s) / %d)::bigint", at, int64(s.period/time.Second))
	}
	// The bucket of a result that is kept in the row is null.
	of := fmt.Sprintf("CASE WHEN length(w.response_payload) >= %d AND %s <= %s + %d THEN %[2]s END", s.opts.apart, bucket("w.expires_at"), bucket("now()"), aheadPartitions)
	// A crash before the commit leaves neither the record's new version nor its
	// result. A crash after it leaves both.
	update := func(from, limit, noted, say string) string {
		set := strings.Replace(assignments(), "response_payload = w.response_payload",
			"response_payload = CASE WHEN w.bucket IS NULL THEN w.response_payload END, result_bucket = w.bucket", 1)
		return "WITH changed AS (UPDATE " + log + " l SET " + set + " FROM (SELECT w.*, " + of + " AS bucket FROM " + from + ") AS w" + limit +
			" WHERE l.id = w.id AND l.revision = w.expect AND " + inTime + " RETURNING l.id, w.bucket, w.revision, w.response_payload)," +
			" kept AS (INSERT INTO " + results + " (bucket, id, revision, response_payload)" +
			" SELECT bucket, id, revision, response_payload FROM changed WHERE bucket IS NOT NULL)" + noted + " " + say
	}
	both := func(from, noted, say string) text {
		return text{any: update(from, limit, noted, say), direct: update(from, "", noted, say)}
	}
	noted := noting(s.opts.Schema, "changed", len(change)+1)
	many, one := counting(markUpdated, "changed"), naming("changed")
	p.update, p.update1 = both(unnest(change), "", many), both(params(change), "", one)
	p.noted.update, p.noted.update1 = both(unnest(change), noted, many), both(params(change), noted, one)
	p.update.mark, p.noted.update.mark = markUpdated, markUpdated
	// What an operator deletes before it expires is to be gone at once.
	purge := func(limit string) string {
		return "WITH gone AS (DELETE FROM " + log + " l USING unnest($1::bytea[], $2::bytea[]) AS w(id, revision)" + limit +
			" WHERE l.id = w.id AND l.revision = w.revision RETURNING l.id, CASE WHEN l.expires_at > now() THEN l.result_bucket END AS bucket)," +
			" early AS (DELETE FROM " + results + " r USING gone WHERE r.bucket = gone.bucket AND r.id = gone.id) SELECT id FROM gone"
	}
	p.purge = text{any: purge(limit), direct: purge("")}
	return p
}
