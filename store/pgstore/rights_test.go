package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/store"
)

// TestGrants: a role with what Grants prints can do all that a store does, one without is told
// what it lacks, and neither can migrate.
func TestGrants(t *testing.T) {
	server := pgtest.Shared(t)
	database := server.Database(t)
	pool := newTestPool(t, server.URL(database))
	if _, err := Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	const role = `semel "app"`
	name := quote(role)
	server.Exec(t, database, "CREATE ROLE "+name+" LOGIN")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, server.URL(database))
		noError(t, err)
		_, err = conn.Exec(ctx, "DROP OWNED BY "+name+"; DROP ROLE "+name)
		noError(t, errors.Join(err, conn.Close(ctx)))
	})
	url := strings.Replace(server.URL(database), "postgres@", "semel%20%22app%22@", 1)
	_, err := Open(t.Context(), url, nil)
	if err == nil || !strings.Contains(err.Error(), "permission denied for schema semel") || !strings.Contains(err.Error(), "semel migrate print --role") {
		t.Fatalf("without rights: %v", err)
	}
	server.Exec(t, database, Grants("", role))
	s, err := Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { noError(t, s.Close()) })
	rec := put(t, s, testRecord("k"), store.Revision{})
	rec = put(t, s, rec, rec.Revision)
	if page, err := s.Search(t.Context(), store.Query{Key: rec.ID.Key}); err != nil || len(page.Records) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	if _, err := s.Due(t.Context(), store.DueQuery{Until: rec.NextAt, Limit: 1}); err != nil {
		t.Error(err)
	}
	if n, err := s.Purge(t.Context(), []store.Ref{{ID: rec.ID, Revision: rec.Revision}}); err != nil || n != 1 {
		t.Errorf("%d are purged, %v", n, err)
	}
	if a := s.Extras().Archive; a != nil {
		noError(t, a.Archive(t.Context(), []store.Record{rec}))
	}
	conn, err := pgx.Connect(t.Context(), url)
	noError(t, err)
	defer conn.Close(t.Context())
	for _, sql := range []string{"CREATE TABLE semel.x ()", "DELETE FROM semel.semel_migrations", "DROP TABLE semel.semel_records"} {
		if _, err := conn.Exec(t.Context(), sql); err == nil {
			t.Errorf("the role may %s", sql)
		}
	}
}
