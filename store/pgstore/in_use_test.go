package pgstore

import (
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/rig/pgtest"
)

// TestAMigrationThatRenames isn't made by a node that starts while others are connected. An
// operator can make it.
func TestAMigrationThatRenames(t *testing.T) {
	server := pgtest.Shared(t)
	known, err := migrations()
	noError(t, err)
	old := func(t *testing.T, upTo int) (database string) {
		database = server.Database(t)
		server.Exec(t, database, "BEGIN; CREATE SCHEMA semel; "+script(DefaultSchema, known[:upTo])+"COMMIT;")
		return database
	}
	made := func(t *testing.T, database string) (n int) {
		list, err := Status(t.Context(), newTestPool(t, server.URL(database)), "")
		noError(t, err)
		for _, m := range list {
			if !m.AppliedAt.IsZero() {
				n++
			}
		}
		return n
	}
	t.Run("is refused until they are gone", func(t *testing.T) {
		database := old(t, 3)
		node := server.Conn(t, database)
		_, err := node.Exec(t.Context(), "SET application_name = 'semel'")
		noError(t, err)
		_, err = Open(t.Context(), server.URL(database), &Options{Migrate: true})
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "semel migrate up") || made(t, database) != 3 {
			t.Fatalf("%v, and %d migrations were made", err, made(t, database))
		}
		noError(t, node.Close(t.Context()))
		mustClose(t, mustOpen(t, server.URL(database), &Options{Migrate: true}))
	})
	t.Run("is made by an operator", func(t *testing.T) {
		database := old(t, 3)
		_, err := server.Conn(t, database).Exec(t.Context(), "SET application_name = 'semel'")
		noError(t, err)
		if list, err := Migrate(t.Context(), newTestPool(t, server.URL(database)), ""); err != nil || len(list) != len(known)-3 {
			t.Error(list, err)
		}
	})
	t.Run("and others are made beside nodes", func(t *testing.T) {
		database := old(t, 4)
		_, err := server.Conn(t, database).Exec(t.Context(), "SET application_name = 'semel'")
		noError(t, err)
		mustClose(t, mustOpen(t, server.URL(database), &Options{Migrate: true}))
	})
	t.Run("is made by one of several that start at once", func(t *testing.T) {
		database := old(t, 3)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				s, err := Open(t.Context(), server.URL(database), &Options{Migrate: true})
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

var takesAway = regexp.MustCompile(`(?i)ALTER TABLE\s+\S+\s+RENAME (TO|COLUMN)|DROP (TABLE|COLUMN|VIEW)|ALTER COLUMN`)

// TestBreakingMigrations finds migrations that rename or drop and aren't known to.
func TestBreakingMigrations(t *testing.T) {
	known, err := migrations()
	noError(t, err)
	for _, m := range known {
		if takesAway.MatchString(m.sql) != breaking[m.Number] {
			t.Errorf("migration %d: does it take away what earlier programs use? Say so in breaking", m.Number)
		}
	}
}
