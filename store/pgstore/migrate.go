package pgstore

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/internal/engine/callctx"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrationTable has a row for each applied migration of a schema.
const migrationTable = "semel_migrations"

var (
	// ErrNotMigrated is the error, wrapped, that Open returns if migrations are missing.
	ErrNotMigrated = errors.New("the schema lacks migrations: run semel migrate up, or have them made when the store is opened (store.migrate: true, or Options.Migrate in Go)")
	// ErrNewer is the error, wrapped, that Open and the functions for migrations return for a
	// schema that a later program has migrated further than this one knows.
	ErrNewer = errors.New("the schema was migrated by a later program: use that one or a later one")
	// ErrInUse is the error, wrapped, that Open returns if it should apply a migration that
	// stops nodes of earlier versions from serving, while others are connected.
	ErrInUse = errors.New("the migration takes away what nodes of earlier versions use, and they would refuse every call: stop them first, or run semel migrate up to make it in spite of them")
)

// Schema is the number of the last migration that this program knows.
const Schema = 7

// breaking are the migrations that rename or drop something that earlier programs use.
var breaking = map[int]bool{4: true}

// leaving is how long closed sessions may take to end: those of nodes that have just stopped, and of
// programs that connect at the same time as this one and are about to wait for the same migration.
const leaving = 3 * time.Second

// Migration is one step of a schema.
type Migration struct {
	// Number is its place, from 1.
	Number int
	// Name says in a word or two what it adds.
	Name string
	// AppliedAt is the time of the migration by the database's clock; zero if it is missing.
	AppliedAt time.Time
	sql       string
}

// migrations returns all migrations that this program knows, in order: the first file is number 1.
func migrations() ([]Migration, error) {
	files, err := fs.Glob(migrationFiles, "migrations/*.sql") // sorted
	list := make([]Migration, len(files))
	for i, file := range files {
		sql, _ := migrationFiles.ReadFile(file) // it is embedded
		_, name, _ := strings.Cut(strings.TrimSuffix(file, ".sql"), "_")
		list[i] = Migration{Number: i + 1, Name: name, sql: string(sql)}
	}
	return list, err
}

// migrationLock is an SQL expression that waits until no other transaction migrates a schema,
// by a lock that ends with the transaction. Without it, two transactions that find no table
// both create it, and one fails at its name or its row type's (pg_type_typname_nsp_index).
func migrationLock(schema string) string {
	return "pg_advisory_xact_lock(hashtextextended('" + strings.ReplaceAll("semel migrate "+schema, "'", "''") + "', 0))"
}

// script returns SQL that applies migrations to an existing schema, and records them there.
func script(schema string, list []Migration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "SET LOCAL search_path = %s;\nCREATE TABLE IF NOT EXISTS %s", quote(schema), migrationTable)
	b.WriteString(" (number int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());\n")
	for _, m := range list {
		fmt.Fprintf(&b, "\n%sINSERT INTO %s (number, name) VALUES (%d, '%s');\n", m.sql, migrationTable, m.Number, m.Name)
	}
	return b.String()
}

// Migrate brings a schema up to what this program needs, creates it if it doesn't exist, and
// returns the migrations that it applied: all or none. An empty name stands for
// [DefaultSchema]. Callers that migrate at the same time wait for each other.
//
// It doesn't check who uses the schema: after a migration that renames something, nodes of
// earlier versions refuse every call, so stop them first.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schema string) (made []Migration, err error) {
	return migrate(ctx, pool, schema, func(context.Context, pgx.Tx, []Migration) error { return nil })
}

// migrate is [Migrate], but asks allow before it applies the missing migrations.
func migrate(ctx context.Context, pool *pgxpool.Pool, schema string, allow func(ctx context.Context, tx pgx.Tx, missing []Migration) error) (made []Migration, err error) {
	schema = cmp.Or(schema, DefaultSchema)
	// A crash before the commit leaves the schema as it was. Read committed, whatever the
	// database's default: at another level it would keep seeing the state from before the lock.
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		// One at a time. Later callers find nothing missing.
		if _, err := tx.Exec(ctx, "SELECT "+migrationLock(schema)); err != nil {
			return err
		}
		list, err := status(ctx, tx, schema)
		if err != nil {
			return err
		}
		known := len(list)
		missing := slices.DeleteFunc(list, func(m Migration) bool { return !m.AppliedAt.IsZero() })
		if len(missing) < known { // otherwise nobody can be using it
			if err := allow(ctx, tx, missing); err != nil {
				return err
			}
		}
		// Creating a schema needs a right that using one doesn't.
		var exists bool
		err = tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema).Scan(&exists)
		if err == nil && !exists {
			_, err = tx.Exec(ctx, "CREATE SCHEMA "+quote(schema))
		}
		if err == nil {
			_, err = tx.Conn().PgConn().Exec(ctx, script(schema, missing)).ReadAll()
		}
		if err == nil {
			list, err = status(ctx, tx, schema)
		}
		if err == nil {
			made = list[len(list)-len(missing):]
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pgstore: migrate schema %q: %w", schema, onRights(plainly(err), ownersOnly))
	}
	return made, nil
}

// unused returns [ErrInUse] if earlier programs can't work with one of the missing migrations,
// and sessions of this program's name are connected that don't wait for the same migration.
func unused(ctx context.Context, tx pgx.Tx, missing []Migration) error {
	i := slices.IndexFunc(missing, func(m Migration) bool { return breaking[m.Number] })
	if i < 0 {
		return nil
	}
	deadline := time.Now().Add(leaving)
	for {
		// Without this, a transaction would keep seeing the sessions that it saw first.
		if _, err := tx.Exec(ctx, "SELECT pg_stat_clear_snapshot()"); err != nil {
			return err
		}
		var others int
		err := tx.QueryRow(ctx, "SELECT count(*) FROM pg_stat_get_activity(NULL) a JOIN pg_database d ON d.oid = a.datid"+
			" WHERE d.datname = current_database() AND a.application_name = current_setting('application_name')"+
			" AND NOT EXISTS (SELECT FROM pg_locks l JOIN pg_locks mine USING (locktype, database, classid, objid, objsubid)"+
			" WHERE l.pid = a.pid AND l.locktype = 'advisory' AND mine.pid = pg_backend_pid())").Scan(&others)
		switch {
		case err != nil:
			return err
		case others == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%w (migration %d, %d sessions)", ErrInUse, missing[i].Number, others)
		}
		if !callctx.Pause(ctx, 100*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// Status lists the migrations that this program knows, and when each was applied to a schema.
func Status(ctx context.Context, pool *pgxpool.Pool, schema string) ([]Migration, error) {
	schema = cmp.Or(schema, DefaultSchema)
	list, err := status(ctx, pool, schema)
	if err != nil {
		return nil, fmt.Errorf("pgstore: status of schema %q: %w", schema, onRights(plainly(err), ownersOnly))
	}
	return list, nil
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func status(ctx context.Context, q querier, schema string) ([]Migration, error) {
	list, err := migrations()
	if err != nil {
		return nil, err
	}
	table := name(schema, migrationTable)
	var exists bool
	if err := q.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&exists); err != nil || !exists {
		return list, err
	}
	var n int
	var at time.Time
	rows, _ := q.Query(ctx, "SELECT number, applied_at FROM "+table+" ORDER BY number") // rows has its error, too
	_, err = pgx.ForEachRow(rows, []any{&n, &at}, func() error {
		if n < 1 || n > len(list) {
			return fmt.Errorf("%w (migration %d, known up to %d)", ErrNewer, n, len(list))
		}
		list[n-1].AppliedAt = at
		return nil
	})
	return list, err
}

// Print writes the SQL of all migrations, so that you can run it with other tools. That SQL
// waits for programs that migrate the schema at the same time.
func Print(w io.Writer, schema string) error {
	list, err := migrations()
	if err != nil {
		return err
	}
	schema = cmp.Or(schema, DefaultSchema)
	// PERFORM returns no row, which tools would otherwise print.
	_, err = fmt.Fprintf(w, "BEGIN;\nDO $$ BEGIN PERFORM %s; END $$;\nCREATE SCHEMA IF NOT EXISTS %s;\n%sCOMMIT;\n", migrationLock(schema), quote(schema), script(schema, list))
	return err
}

// checkSchema refuses a schema that this program can't work with.
func checkSchema(ctx context.Context, q querier, schema string) error {
	list, err := status(ctx, q, schema)
	if err != nil {
		return err
	}
	for _, m := range list {
		if m.AppliedAt.IsZero() {
			return fmt.Errorf("%w (migration %d of schema %q is missing)", ErrNotMigrated, m.Number, schema)
		}
	}
	return nil
}

func quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }

// name returns a table's name with its schema.
func name(schema, table string) string { return pgx.Identifier{schema, table}.Sanitize() }
