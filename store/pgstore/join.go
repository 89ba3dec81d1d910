package pgstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// link is a transaction of the application, by pgx or by database/sql.
type link struct {
	exec             func(ctx context.Context, sql string) error
	queryRow         func(ctx context.Context, sql string, args ...any) pgx.Row
	commit, rollback func(ctx context.Context) error
}

func pgxLink(tx pgx.Tx) link {
	return link{
		exec: func(ctx context.Context, sql string) error {
			_, err := tx.Exec(ctx, sql)
			return err
		},
		queryRow: tx.QueryRow, commit: tx.Commit, rollback: tx.Rollback,
	}
}

// sqlLink returns conn to its pool, broken or not, when the transaction has ended. conn is nil
// if the application ends the transaction.
func sqlLink(tx *sql.Tx, conn *sql.Conn) link {
	ended := func(err error) error {
		_ = conn.Close()
		return err
	}
	return link{
		exec: func(ctx context.Context, sql string) error {
			_, err := tx.ExecContext(ctx, sql)
			return err
		},
		queryRow: func(ctx context.Context, sql string, args ...any) pgx.Row {
			return tx.QueryRowContext(ctx, sql, args...)
		},
		commit:   func(context.Context) error { return ended(tx.Commit()) },
		rollback: func(context.Context) error { return ended(tx.Rollback()) },
	}
}

// joined is a [store.Tx] on a transaction of the application.
type joined struct {
	store *Store
	link  link
	waits string        // the application's lock_timeout
	wrote *semel.Record // the last one, which shows whether an unanswered commit succeeded
}

// calls is a setting of the transaction that lists the calls begun in it. It disappears with
// the transaction, or the savepoint that is rolled back, as locks do.
const calls = "coalesce(current_setting('semel.calls', true), '')"

// joinLock returns which table the transaction sees, and takes the locks of a call.
const joinLock = "SELECT " + whichTable + ", current_setting('lock_timeout')," +
	" CASE WHEN position($3::text IN " + calls + ") > 0 THEN 'nested'" +
	" WHEN NOT pg_try_advisory_xact_lock($4::bigint) THEN 'busy'" +
	" WHEN NOT pg_try_advisory_xact_lock($2::bigint) THEN 'other'" +
	" WHEN set_config('semel.calls', " + calls + " || $3::text, true) <> '' THEN 'locked' END"

// joinEnd is the end of a statement that makes one write. It returns whether the write was
// applied, and whether it came too late: its deadline is over, and the stored revision is still
// the expected one. It restores how long the application's statements may wait for a lock.
func joinEnd(log string, columns []column[*op], expect string) string {
	n := len(columns) // the last one is the deadline; a limit and the entries follow it
	return fmt.Sprintf(" SELECT made.id IS NOT NULL, coalesce(clock_timestamp() >= ($%d::timestamptz[])[1], false)"+
		" AND (SELECT revision FROM %s WHERE id = ($1::bytea[])[1]) IS NOT DISTINCT FROM %s, %s"+
		" FROM (VALUES (1)) AS always LEFT JOIN made ON true", n, log, expect, lockTimeout(fmt.Sprintf("$%d::text", n+7)))
}

// lockKey returns the advisory lock of an identity in a schema. If two identities share one of
// the 2^64 locks, each only looks in flight to the other.
func lockKey(schema string, d *digest) int64 {
	h := fnv.New64a()
	h.Write([]byte(schema))
	return int64(binary.BigEndian.Uint64(d[:8]) ^ h.Sum64())
}

// whichTable identifies the store's table across databases: by the name of the database and the
// table's number in it. Its parameter is the table's name.
const whichTable = "current_database() || '/' || $1::text::regclass::oid"

// table returns whichTable as the store's own connections see it. It asks the server if it
// doesn't know yet, or if the answer differs from seen: the database may have moved.
func (s *Store) table(ctx context.Context, seen string) (string, error) {
	if known := s.where.Load(); known != nil && *known == seen {
		return seen, nil
	}
	where, err := one(query(ctx, s, text, newStatement("SELECT "+whichTable, []byte(name(s.opts.Schema, "semel_records")))))
	if err == nil {
		s.where.Store(&where)
	}
	return where, err
}

// Lock is [store.Tx.Lock], by two advisory locks of the transaction: first one for the identity
// and what the call is bound to, then one for the identity. If it gets the first but not the
// second, the other transaction's call is bound to something else.
func (j *joined) Lock(ctx context.Context, id semel.ID, boundTo string) (store.TxLock, error) {
	d := digest(id.Digest())
	bound := digest(sha256.Sum256(append(d[:], boundTo...)))
	schema := j.store.opts.Schema
	args := []any{name(schema, "semel_records"), lockKey(schema, &d), base64.RawURLEncoding.EncodeToString(d[:]) + " ", lockKey(schema, &bound)}
	var here, got string
	if err := j.link.queryRow(ctx, joinLock, args...).Scan(&here, &j.waits, &got); err != nil {
		return store.TxBusy, fmt.Errorf("pgstore: lock: %w", err)
	}
	where, err := j.store.table(ctx, here)
	switch {
	case err != nil:
		return store.TxBusy, err
	case where != here:
		return store.TxBusy, &semel.Error{Code: semel.CodeUnsupported, Message: "the transaction is in another database than the engine's store"}
	case got == "nested":
		return store.TxBusy, &semel.Error{Code: semel.CodeInvalidCall, Message: "the call was begun in this transaction before"}
	case got == "other":
		return store.TxOther, nil
	case got == "locked":
		return store.TxLocked, nil
	}
	return store.TxBusy, nil
}

// Apply is [store.Tx.Apply], by the statement for batches of writes.
func (j *joined) Apply(ctx context.Context, w store.Write) (bool, error) {
	o, err := j.store.newOp(w)
	if err != nil {
		return false, err
	}
	write := j.store.sql.writes[o.creates()]
	args, err := literals(write.noting(map[string]any{}, []*op{o}, j.store.opts.LockTimeout), len(write.columns))
	if err != nil {
		return false, err
	}
	args = append(args, j.waits)
	var applied, late bool
	var restored string
	err = j.link.queryRow(ctx, write.join, args...).Scan(&applied, &late, &restored)
	if err == nil && !applied && late {
		err = store.ErrTooLate
	}
	switch {
	case errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, sql.ErrTxDone):
		return false, &semel.Error{Code: semel.CodeUnknown, Message: "the transaction was ended before its outcome was written", Err: err}
	case metLock(err): // another writer has the record and didn't finish in time
		return false, fmt.Errorf("pgstore: apply: %w: %w", errRolledBack, err)
	case err != nil:
		return false, fmt.Errorf("pgstore: apply: %w", err)
	case applied:
		j.wrote = w.Record
	}
	return applied, nil
}

// literals turns the parameters of a statement into text, because not every driver knows arrays
// or the binary form. All are arrays except the one at plain.
func literals(params [][]byte, plain int) ([]any, error) {
	types, args := pgtype.NewMap(), make([]any, len(params))
	for i, param := range params {
		if i == plain {
			args[i] = string(param)
			continue
		}
		element, _ := types.TypeForOID(binary.BigEndian.Uint32(param[8:])) // see arrays
		list, _ := types.TypeForName("_" + element.Name)
		value, err := list.Codec.DecodeValue(types, list.OID, pgtype.BinaryFormatCode, param)
		if err != nil {
			return nil, notApplied(err)
		}
		text, err := types.Encode(list.OID, pgtype.TextFormatCode, value, nil)
		if err != nil {
			return nil, notApplied(err)
		}
		args[i] = string(text)
	}
	return args, nil
}

// Committed is [store.Tx.Committed].
func (j *joined) Committed(id semel.ID) {
	d := digest(id.Digest())
	j.store.changed(&d)
}
