package pgstore

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// oldRecord is the record of testdata/schema-1.sql.
func oldRecord() semel.Record {
	rec := testRecord("order-1")
	rec.State, rec.Holder, rec.LeaseUntil = semel.Completed, "", 0
	rec.Result = semel.Result{Data: []byte("paid")}
	rec.EndedAt = rec.UpdatedAt
	rec.ExpiresAt = rec.UpdatedAt.Add(24 * time.Hour)
	rec.NextAt = rec.ExpiresAt
	return rec
}

// TestUpgradeOfASchema takes a schema of each earlier migration, with what builds of that time
// wrote, up to this program's: nothing is lost, all is found, and it goes on from there.
func TestUpgradeOfASchema(t *testing.T) {
	server := pgtest.Shared(t)
	known, err := migrations()
	noError(t, err)
	rows, err := os.ReadFile("testdata/schema-1.sql")
	noError(t, err)
	for from := 1; from < 4; from++ { // of the fourth on, the names of columns are today's
		t.Run(fmt.Sprintf("from migration %d", from), func(t *testing.T) {
			database := server.Database(t)
			server.Exec(t, database, "BEGIN; CREATE SCHEMA semel; "+script(DefaultSchema, known[:from])+"COMMIT;")
			server.Exec(t, database, string(rows))
			if _, err := Open(t.Context(), server.URL(database), nil); !errors.Is(err, ErrNotMigrated) {
				t.Errorf("a node of this version starts on it: %v", err)
			}
			s := mustOpen(t, server.URL(database), &Options{Migrate: true})
			defer mustClose(t, s)
			want := oldRecord()
			got, err := s.Get(t.Context(), want.ID)
			if err != nil || !reflect.DeepEqual(*got, want) {
				t.Fatalf("the record is\n%+v, %v, want\n%+v", got, err, want)
			}
			if page, err := s.Search(t.Context(), store.Query{Key: "order-1"}); err != nil || len(page.Records) != 1 {
				t.Errorf("%d records are found, %v", len(page.Records), err)
			}
			if page, err := s.Due(t.Context(), store.DueQuery{Until: want.NextAt, Limit: 9}); err != nil || len(page.Records) != 1 {
				t.Errorf("%d records are due, %v", len(page.Records), err)
			}
			entries, err := s.ReadEvidence(t.Context(), 0, 9)
			if err != nil || len(entries) != 2 || string(entries[0].Leaf) != "old" || string(entries[0].Opening) != "open" || string(entries[1].Leaf) != "new" {
				t.Errorf("the log has %q, %v", entries, err)
			}
			noError(t, s.Archive(t.Context(), []semel.Record{*got})) // it is there
			var archived int
			noError(t, s.reads.QueryRow(t.Context(), "SELECT count(*) FROM semel.idempotency_archive").Scan(&archived))
			if archived != 1 {
				t.Errorf("%d records are in the archive", archived)
			}
			next := *got
			next.Revision = store.Revision{9}
			put(t, s, next, got.Revision)
			noError(t, everyStatement(t.Context(), s, "afterwards"))
		})
	}
}

// TestANodeBesideALaterVersion: a node goes on while a later version has migrated the schema
// by adding to it, leaves records alone that it can't read, and doesn't start again.
func TestANodeBesideALaterVersion(t *testing.T) {
	s, database := open(t, Options{})
	server := pgtest.Shared(t)
	mine := put(t, s, numbered("mine", 1), store.Revision{})
	theirs := put(t, s, numbered("theirs", 2), store.Revision{})
	id := theirs.ID.Digest()
	server.Exec(t, database, "ALTER TABLE semel.semel_records ADD COLUMN later int; CREATE TABLE semel.semel_later (); INSERT INTO semel.semel_migrations VALUES (99, 'later')")
	server.Exec(t, database, fmt.Sprintf("UPDATE semel.semel_records SET record = '\\x%x' WHERE id = '\\x%x'", newerRow(t, &theirs), id))
	noError(t, everyStatement(t.Context(), s, "beside"))
	if _, err := s.Get(t.Context(), mine.ID); err != nil {
		t.Error(err)
	}
	if rec, err := s.Get(t.Context(), theirs.ID); err == nil {
		t.Errorf("a record of a later version is read as %+v", rec)
	}
	// Whoever can't read a record can't replace it: a claim of its key fails.
	if rec, applied, err := s.Apply(t.Context(), store.Write{Record: new(numbered("theirs", 3))}); err == nil || applied {
		t.Errorf("it is claimed: %+v", rec)
	}
	page, err := s.Due(t.Context(), store.DueQuery{Until: mine.NextAt, Limit: 9})
	if err != nil || len(page.Records) != 1 || len(page.Unreadable) != 1 {
		t.Errorf("%d records are due and %d can't be read, %v", len(page.Records), len(page.Unreadable), err)
	}
	if _, err := Open(t.Context(), server.URL(database), nil); !errors.Is(err, ErrNewer) {
		t.Errorf("it starts again: %v", err)
	}
}
