package pgstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// insufficientPrivilege is the SQLSTATE for a missing right.
const insufficientPrivilege = "42501"

// newRole makes a role that may log in, and returns the URL by which it does.
func newRole(t *testing.T, server *pgtest.Server, database, role string) string {
	t.Helper()
	name := quote(role)
	server.Exec(t, database, "CREATE ROLE "+name+" LOGIN")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, server.URL(database))
		noError(t, err)
		_, err = conn.Exec(ctx, "DROP OWNED BY "+name+"; DROP ROLE "+name)
		noError(t, errors.Join(err, conn.Close(ctx)))
	})
	escaped := strings.NewReplacer(" ", "%20", `"`, "%22").Replace(role)
	return strings.Replace(server.URL(database), "postgres@", escaped+"@", 1)
}

// everyStatement makes a store run each of its statements once, and returns the first error.
func everyStatement(ctx context.Context, s *Store, key string) error {
	rec := testRecord(key)
	apply := func(expect store.Revision) error {
		_, applied, err := s.Apply(ctx, store.Write{Record: new(rec), Expect: expect, Evidence: []store.Entry{{Leaf: []byte("leaf"), Opening: []byte("opening")}}})
		if err == nil && !applied {
			err = errors.New("a write is not applied")
		}
		return err
	}
	update := func() error {
		old := rec.Revision
		rec.Revision[1]++
		return apply(old)
	}
	purge := func() error {
		n, err := s.Purge(ctx, []store.Ref{{ID: rec.ID, Revision: rec.Revision}})
		if err == nil && n != 1 {
			err = fmt.Errorf("%d records are purged", n)
		}
		return err
	}
	for _, step := range []func() error{
		func() error {
			if err := checkSchema(ctx, s.reads, s.opts.Schema); !errors.Is(err, ErrNewer) {
				return err
			}
			return nil
		},
		func() error { return apply(store.Revision{}) },
		update,
		func() error { _, err := s.Get(ctx, rec.ID); return err },
		func() error { _, err := s.Search(ctx, store.Query{Key: rec.ID.Key}); return err },
		func() error { _, err := s.Due(ctx, store.DueQuery{Until: rec.NextAt, Limit: 1}); return err },
		func() error { return s.Archive(ctx, []store.Record{rec}) },
		purge,
		func() error { return s.AppendEvidence(ctx, []store.Entry{{Leaf: []byte("leaf")}}) },
		func() error { _, err := s.ReadEvidence(ctx, 0, 10); return err },
		func() error { _, err := s.FindEvidence(ctx, store.Subject{1}, 0, 10); return err },
		func() error { return s.EraseEvidence(ctx, 0, 1) },
		func() error { return s.PutEvidenceTiles(ctx, map[string][]byte{"tile": []byte("t")}) },
		func() error { _, err := s.EvidenceTile(ctx, "tile"); return err },
		func() error {
			was, err := s.noted(ctx)
			if err == nil {
				err = s.note(ctx, was, was)
			}
			return err
		},
		func() error { return s.CheckWrites(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// TestGrants: a role with what Grants prints can do all that a store does, and nothing else.
// Without one of the rights the store says, at its start and while it runs, what to type, and
// whoever types it is done; and without it some statement is refused, so none is too many.
func TestGrants(t *testing.T) {
	server := pgtest.Shared(t)
	database := server.Database(t)
	pool := newTestPool(t, server.URL(database))
	if _, err := Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	const role = `semel "app"`
	url := newRole(t, server, database, role)
	grant := regexp.MustCompile(`GRANT [^;]*;`)

	// What an earlier version printed gave too much, and is taken back.
	server.Exec(t, database, "GRANT DELETE ON ALL TABLES IN SCHEMA semel TO "+quote(role))
	_, err := Open(t.Context(), url, nil)
	if !errors.Is(err, ErrRights) || !strings.Contains(err.Error(), `GRANT USAGE ON SCHEMA "semel" TO "semel ""app""";`) {
		t.Fatalf("without rights: %v", err)
	}
	stranger := newTestPool(t, url)
	_, migrated := Migrate(t.Context(), stranger, "")
	_, seen := Status(t.Context(), stranger, "")
	for _, err := range []error{migrated, seen} {
		if !strings.Contains(fmt.Sprint(err), "Connect as the owner of the schema") {
			t.Errorf("without rights: %v", err)
		}
	}
	server.Exec(t, database, Grants("", role))
	s := mustOpen(t, url, &Options{noNotices: true})
	t.Cleanup(func() { mustClose(t, s) })
	noError(t, everyStatement(t.Context(), s, "all"))

	each := []string{grantUsage(DefaultSchema, role)}
	for _, r := range rights {
		for _, privilege := range r.privileges {
			each = append(each, right{r.table, []string{privilege}}.grant(DefaultSchema, role))
		}
	}
	for i, statement := range each {
		what, _, _ := strings.Cut(strings.TrimPrefix(statement, "GRANT "), " TO ")
		t.Run("without "+what, func(t *testing.T) {
			server.Exec(t, database, strings.NewReplacer("GRANT", "REVOKE", " TO ", " FROM ").Replace(statement))
			err := everyStatement(t.Context(), s, fmt.Sprint("k", i))
			if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != insufficientPrivilege {
				t.Errorf("it isn't needed: %v", err)
			}
			for _, err := range []error{s.CheckWrites(t.Context()), second(Open(t.Context(), url, nil))} {
				if got := grant.FindAllString(fmt.Sprint(err), -1); !errors.Is(err, ErrRights) || len(got) != 1 || got[0] != statement {
					t.Errorf("%v\nwant only %s", err, statement)
				}
			}
			server.Exec(t, database, statement)
			noError(t, everyStatement(t.Context(), s, fmt.Sprint("granted", i)))
		})
	}

	conn, err := pgx.Connect(t.Context(), url)
	noError(t, err)
	defer conn.Close(t.Context())
	for _, sql := range []string{
		"CREATE TABLE semel.x ()", "DROP TABLE semel.semel_records", "TRUNCATE semel.semel_records", "INSERT INTO semel.semel_migrations VALUES (99, 'x')",
		"DELETE FROM semel.semel_migrations", "DELETE FROM semel.semel_clock", "DELETE FROM semel.idempotency_archive", "UPDATE semel.idempotency_archive SET state = ''",
		"DELETE FROM semel.semel_evidence", "UPDATE semel.semel_evidence SET leaf = ''", "DELETE FROM semel.semel_evidence_also", "UPDATE semel.semel_evidence_tile SET tile = ''",
		"SELECT FROM semel.idempotency_log",
	} {
		if _, err := conn.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), insufficientPrivilege) {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// second is the error of a call, whose store nobody needs.
func second(s *Store, err error) error {
	if err == nil {
		err = errors.Join(errors.New("it opens"), s.Close())
	}
	return err
}
