package pgstore

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrationTable has a row for each migration that was made in a schema.
const migrationTable = "semel_migrations"

// ErrNotMigrated is what Open returns, wrapped, where migrations are missing.
var ErrNotMigrated = errors.New("the schema lacks migrations: run semel migrate up, or set Options.Migrate")

// ErrNewer is what Open and the functions for migrations return, wrapped, for a
// schema that a later program has migrated further than this one knows.
var ErrNewer = errors.New("the schema was migrated by a later program: use that one or a later one")

// Migration is one step of a schema.
type Migration struct {
	// Number is its place, from 1.
	Number int
	// Name says what it brings.
	Name string
	// AppliedAt is when it was made, by the database's clock; zero if it was not.
	AppliedAt time.Time

	sql string
}

// migrations are all that this program knows, in their order.
func migrations() ([]Migration, error) {
	files, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		return nil, err
	}
	list := make([]Migration, len(files))
	for i, f := range files {
		sql, err := migrationFiles.ReadFile("migrations/" + f.Name())
		if err != nil {
			return nil, err
		}
		number, name, _ := strings.Cut(strings.TrimSuffix(f.Name(), ".sql"), "_")
		n, err := strconv.Atoi(number)
		if err != nil || n != i+1 {
			return nil, fmt.Errorf("pgstore: migration %s has not number %d", f.Name(), i+1)
		}
		list[i] = Migration{Number: n, Name: name, sql: string(sql)}
	}
	return list, nil
}

// Migrate brings a schema up to what this program needs, and makes it if there is
// none. An empty name stands for [DefaultSchema]. It returns the migrations that it
// made. Programs that call it at the same time wait for each other. The schema is
// migrated as a whole or stays as it was.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schema string) ([]Migration, error) {
	made, err := migrate(ctx, pool, cmp.Or(schema, DefaultSchema))
	if err != nil {
		return nil, fmt.Errorf("pgstore: migrate schema %q: %w", cmp.Or(schema, DefaultSchema), err)
	}
	return made, nil
}

func migrate(ctx context.Context, pool *pgxpool.Pool, schema string) (made []Migration, err error) {
	// A crash before the commit leaves the schema as it was.
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := lockSchema(ctx, tx, schema); err != nil {
			return err
		}
		if err := prepareSchema(ctx, tx, schema); err != nil {
			return err
		}
		list, err := status(ctx, tx, schema)
		if err != nil {
			return err
		}
		for _, m := range list {
			if !m.AppliedAt.IsZero() {
				continue
			}
			if _, err := tx.Conn().PgConn().Exec(ctx, m.sql).ReadAll(); err != nil {
				return fmt.Errorf("migration %d: %w", m.Number, err)
			}
			insert := "INSERT INTO " + migrationTable + " (number, name) VALUES ($1, $2) RETURNING applied_at"
			if err := tx.QueryRow(ctx, insert, m.Number, m.Name).Scan(&m.AppliedAt); err != nil {
				return err
			}
			made = append(made, m)
		}
		return nil
	})
	return made, err
}

// lockSchema waits until nobody else changes the schema, and keeps others from it
// until the transaction has ended.
func lockSchema(ctx context.Context, tx pgx.Tx, schema string) error {
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "semel migrate "+schema)
	return err
}

// prepareSchema makes the schema and its table of migrations, and has the rest of
// the transaction work in it.
func prepareSchema(ctx context.Context, tx pgx.Tx, schema string) error {
	var exists bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema).Scan(&exists); err != nil {
		return err
	}
	// Asked first, for making a schema takes a right that using one does not.
	if !exists {
		if _, err := tx.Exec(ctx, "CREATE SCHEMA "+quote(schema)); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, "SELECT set_config('search_path', $1, true)", quote(schema)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+migrationTable+
		" (number int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())")
	return err
}

// Status lists the migrations that this program knows, and which of them were made
// in a schema.
func Status(ctx context.Context, pool *pgxpool.Pool, schema string) ([]Migration, error) {
	list, err := status(ctx, pool, cmp.Or(schema, DefaultSchema))
	if err != nil {
		return nil, fmt.Errorf("pgstore: status of schema %q: %w", cmp.Or(schema, DefaultSchema), err)
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
	rows, err := q.Query(ctx, "SELECT number, applied_at FROM "+table+" ORDER BY number")
	if err != nil {
		return nil, err
	}
	var n int
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&n, &at}, func() error {
		if n < 1 || n > len(list) {
			return fmt.Errorf("%w (migration %d, known up to %d)", ErrNewer, n, len(list))
		}
		list[n-1].AppliedAt = at
		return nil
	})
	return list, err
}

// Print writes the SQL of all migrations, for those who run it by other means.
func Print(w io.Writer, schema string) error {
	list, err := migrations()
	if err != nil {
		return err
	}
	schema = quote(cmp.Or(schema, DefaultSchema))
	var b strings.Builder
	fmt.Fprintf(&b, "BEGIN;\nCREATE SCHEMA IF NOT EXISTS %s;\nSET LOCAL search_path = %s;\n", schema, schema)
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s (number int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());\n", migrationTable)
	for _, m := range list {
		fmt.Fprintf(&b, "\n%sINSERT INTO %s (number, name) VALUES (%d, '%s');\n", m.sql, migrationTable, m.Number, m.Name)
	}
	b.WriteString("COMMIT;\n")
	_, err = io.WriteString(w, b.String())
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

// name is a table's name with its schema.
func name(schema, table string) string { return pgx.Identifier{schema, table}.Sanitize() }
