package pgstore

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
)

// joined is a [semel.Tx] on a transaction of the application.
type joined struct {
	store *Store
	link  link
	// waits is the lock_timeout of the application.
	waits string
	// wrote is the last record that was written, which a commit that was not
	// answered is looked for by.
	wrote *semel.Record
}

// joins is what a store knows for transactions of the application.
type joins struct {
	once sync.Once
	sql  joinStatements

	mu    sync.Mutex
	where string // the table; empty: not known yet
}

// joinStatements are what the store sends in transactions of the application. They
// change one row, have plain parameters, and are for any driver.
type joinStatements struct{ lock, create, update, late string }

// callsSetting is a setting of the transaction that lists the calls begun in it. It
// goes with the transaction, or with the savepoint that is rolled back, as locks do.
const callsSetting = "semel.calls"

func newJoinStatements(schema string, lockTimeout time.Duration) joinStatements {
	table := name(schema, "idempotency_log")
	all := append(versionMembers[:len(versionMembers):len(versionMembers)], identityMembers...)
	values, set := "", ""
	for i, m := range all {
		if i > 0 {
			values += ", "
		}
		values += fmt.Sprintf("$%d::%s", i+1, m.kind)
	}
	for i, m := range versionMembers[1:] {
		if i > 0 {
			set += ", "
		}
		set += fmt.Sprintf("%s = $%d::%s", m.name, i+2, m.kind)
	}
	// The statement may wait for a row that another holds, for this long at most.
	// What the application's own statements may wait is given back afterwards.
	limit := fmt.Sprintf("set_config('lock_timeout', '%dms', true) AS s(x)", lockTimeout.Milliseconds())
	restore := func(n int) string { return fmt.Sprintf(" RETURNING set_config('lock_timeout', $%d::text, true)", n) }
	// The parameters of a creation are its members, its deadline and what is given
	// back; of an update, those of the version, the revision that it follows, and these.
	before := func(n int) string { return beforeDeadline(fmt.Sprintf("$%d::timestamptz", n)) }
	n := len(versionMembers)
	return joinStatements{
		lock: "SELECT current_database()::text, '" + strings.ReplaceAll(table, "'", "''") + "'::regclass::oid::bigint, current_setting('lock_timeout')," +
			" CASE WHEN position($2::text IN coalesce(current_setting('" + callsSetting + "', true), '')) > 0 THEN 'nested'" +
			" WHEN NOT pg_try_advisory_xact_lock($1::bigint) THEN 'busy'" +
			" WHEN set_config('" + callsSetting + "', coalesce(current_setting('" + callsSetting + "', true), '') || $2::text, true) <> '' THEN 'locked' END",
		create: "INSERT INTO " + table + " (" + names(all, "") + ") SELECT " + values + " FROM " + limit +
			" WHERE " + before(len(all)+1) + " ON CONFLICT (id) DO NOTHING" + restore(len(all)+2),
		update: "UPDATE " + table + " l SET " + set + " FROM " + limit +
			fmt.Sprintf(" WHERE l.id = $1::bytea AND l.revision = $%d::bytea AND ", n+1) + before(n+2) + restore(n+3),
		// What a write expects is still there: nothing, or a revision.
		late: "SELECT clock_timestamp() >= $1::timestamptz AND (SELECT revision FROM " + table + " WHERE id = $2::bytea) IS NOT DISTINCT FROM $3::bytea",
	}
}

// lockKey is the advisory lock of an identity in a schema. Two identities that share
// one, among 2^64, would only be in flight for each other.
func lockKey(schema string, d *digest) int64 {
	h := fnv.New64a()
	h.Write([]byte(schema))
	return int64(binary.BigEndian.Uint64(d[:8]) ^ h.Sum64())
}

func (s *Store) joinSQL() *joinStatements {
	s.joins.once.Do(func() { s.joins.sql = newJoinStatements(s.opts.Schema, s.opts.LockTimeout) })
	return &s.joins.sql
}

// table tells the store's table from those of other databases, by the name of the
// database and the table's number in it. It is asked for when it is not known, or
// is not what was seen: the database may have moved.
func (s *Store) table(ctx context.Context, seen string) (string, error) {
	s.joins.mu.Lock()
	defer s.joins.mu.Unlock()
	if s.joins.where == seen {
		return seen, nil
	}
	st := newRareStatement("SELECT convert_to(current_database() || '/' || $1::text::regclass::oid, 'UTF8')", textValue(name(s.opts.Schema, "idempotency_log")))
	err := s.query(ctx, st, func(row [][]byte) error {
		s.joins.where = string(row[0])
		return nil
	})
	return s.joins.where, err
}

// Lock is [semel.Tx.Lock], by an advisory lock of the transaction.
func (j *joined) Lock(ctx context.Context, id semel.ID) (bool, error) {
	d := digest(id.Digest())
	var database, got string
	var table int64
	args := []any{lockKey(j.store.opts.Schema, &d), base64.RawURLEncoding.EncodeToString(d[:]) + " "}
	if _, err := j.link.row(ctx, j.store.joinSQL().lock, args, &database, &table, &j.waits, &got); err != nil {
		return false, fmt.Errorf("pgstore: lock: %w", err)
	}
	here := fmt.Sprintf("%s/%d", database, table)
	where, err := j.store.table(ctx, here)
	switch {
	case err != nil:
		return false, err
	case where != here:
		return false, &semel.Error{Code: semel.CodeUnsupported, Message: "the transaction is in another database than the engine's store"}
	case got == "nested":
		return false, &semel.Error{Code: semel.CodeInvalidCall, Message: "the call was begun in this transaction before"}
	}
	return got == "locked", nil
}

// Apply is [semel.Tx.Apply].
func (j *joined) Apply(ctx context.Context, w semel.Write) (bool, error) {
	rec := &w.Record
	d := digest(rec.ID.Digest())
	record, err := encodeRecord(rec)
	if err != nil {
		return false, err
	}
	fingerprint := rec.Fingerprint.String()
	args := []any{
		d[:], rec.Revision[:], record, orNull(int64(rec.NextAt), rec.NextAt == 0), rec.Held != "",
		orNull(fingerprint, fingerprint == ""), orNull(rec.Result.Data, rec.Result.Data == nil), rec.State.String(),
		timeOrNull(rec.CreatedAt), timeOrNull(rec.UpdatedAt), timeOrNull(rec.ExpiresAt),
	}
	// PostgreSQL has microseconds, and a driver may round to them.
	deadline := orNull(j.store.byServer(w.Deadline).Time().Truncate(time.Microsecond), w.Deadline == 0)
	text := j.store.joinSQL().update
	if w.Expect.IsZero() {
		text = j.store.joinSQL().create
		args = append(args, int64(rec.CreatedAt), rec.ID.Key, rec.ID.Operation, rec.ID.Principal, rec.ID.Tenant, deadline, j.waits)
	} else {
		args = append(args, w.Expect[:], deadline, j.waits)
	}
	if len(w.Evidence) > 0 {
		text, args = joinNoting(j.store.opts.Schema, text, args, w.Evidence)
	}
	var restored string
	applied, err := j.link.row(ctx, text, args, &restored)
	switch {
	case sqlState(err) == "55P03":
		// Another has written the record and was not done in time.
		err = fmt.Errorf("%w: %w", errRolledBack, err)
	case errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, sql.ErrTxDone):
		return false, &semel.Error{Code: semel.CodeUnknown, Message: "the transaction was ended before its outcome was written", Err: err}
	}
	if err == nil && !applied && w.Deadline != 0 {
		var late bool
		args := []any{deadline, d[:], orNull(w.Expect[:], w.Expect.IsZero())}
		if _, err = j.link.row(ctx, j.store.joinSQL().late, args, &late); late {
			err = semel.ErrTooLate
		}
	}
	if err != nil {
		return false, fmt.Errorf("pgstore: apply: %w", err)
	}
	if applied {
		j.wrote = rec
	}
	return applied, nil
}

func orNull(v any, null bool) any {
	if null {
		return nil
	}
	return v
}

func timeOrNull(i semel.Instant) any { return orNull(i.Time(), i == 0) }

// Committed is [semel.Tx.Committed].
func (j *joined) Committed(id semel.ID) {
	d := digest(id.Digest())
	j.store.changed(&d)
}

// sqlState is the code of a server's error, by whatever driver; empty if it is none.
func sqlState(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}
