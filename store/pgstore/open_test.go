package pgstore

import (
	"bytes"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
)

func newTestPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestMigrations(t *testing.T) {
	server := pgtest.Shared(t)
	t.Run("a schema is migrated once, whoever asks", func(t *testing.T) {
		pool := newTestPool(t, server.URL(server.Database(t)))
		known, err := migrations()
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var made []Migration
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				list, err := Migrate(t.Context(), pool, `odd "schema" %s`)
				mu.Lock()
				defer mu.Unlock()
				made = append(made, list...)
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(made) != len(known) {
			t.Errorf("%d migrations were made, want %d", len(made), len(known))
		}
		list, err := Status(t.Context(), pool, `odd "schema" %s`)
		if err != nil || len(list) != len(known) || slices.ContainsFunc(list, func(m Migration) bool { return m.AppliedAt.IsZero() || m.Name == "" }) {
			t.Errorf("the status is %v, %v", list, err)
		}
		s := mustOpen(t, pool.Config().ConnString(), &Options{Schema: `odd "schema" %s`})
		defer mustClose(t, s)
		rec := put(t, s, numbered("k", 1), store.Revision{})
		put(t, s, numbered("k", 2), rec.Revision)
	})
	t.Run("a schema that lacks migrations is refused and left alone", func(t *testing.T) {
		url := server.URL(server.Database(t))
		if _, err := Open(t.Context(), url, nil); !errors.Is(err, ErrNotMigrated) {
			t.Errorf("Open gives %v", err)
		}
		list, err := Status(t.Context(), newTestPool(t, url), "")
		if err != nil || slices.ContainsFunc(list, func(m Migration) bool { return !m.AppliedAt.IsZero() }) {
			t.Errorf("the status is %v, %v", list, err)
		}
	})
	t.Run("why it can't be connected is said once", func(t *testing.T) {
		n := newNetwork(t, server)
		free, err := net.Listen("tcp", "127.0.0.1:0")
		noError(t, err)
		nobody := free.Addr().String()
		noError(t, free.Close())
		// By default the driver tries with TLS first, which this server doesn't have.
		for url, says := range map[string]string{
			"postgres://postgres@" + n.Addr() + "/nodb": `database "nodb" does not exist`,
			"postgres://postgres@" + nobody + "/nodb":   "connection refused",
		} {
			_, err := Open(t.Context(), url, nil)
			if err == nil || strings.Count(err.Error(), says) != 1 || strings.Contains(err.Error(), "TLS") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", url, err)
			}
		}
	})
	t.Run("a schema of a later program is refused", func(t *testing.T) {
		s, database := open(t, Options{})
		server.Exec(t, database, "INSERT INTO semel.semel_migrations VALUES (99, 'later')")
		for _, migrate := range []bool{false, true} {
			if _, err := Open(t.Context(), server.URL(database), &Options{Migrate: migrate}); !errors.Is(err, ErrNewer) {
				t.Errorf("Open with Migrate %v gives %v", migrate, err)
			}
		}
		if _, err := Status(t.Context(), s.reads, ""); !errors.Is(err, ErrNewer) {
			t.Errorf("Status gives %v", err)
		}
	})
	t.Run("the printed SQL makes a schema that the store accepts", func(t *testing.T) {
		database := server.Database(t)
		var sql bytes.Buffer
		if err := Print(&sql, ""); err != nil {
			t.Fatal(err)
		}
		server.Exec(t, database, sql.String())
		mustClose(t, mustOpen(t, server.URL(database), nil))
	})
}

func TestDurability(t *testing.T) {
	clause.Proves(t, "G-LEVEL")
	safe := map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "synchronous_standby_names": "",
		"transaction_read_only": "off", "pg_is_in_recovery": "off"}
	for _, c := range []struct {
		name   string
		change map[string]string
		level  store.Level
		unsafe string
	}{
		{"a single server", nil, store.LevelDisk, ""},
		{"a synchronous standby", map[string]string{"synchronous_standby_names": "one"}, store.LevelReplicated, ""},
		{"a synchronous standby that applies", map[string]string{"synchronous_standby_names": "one", "synchronous_commit": "remote_apply"}, store.LevelReplicated, ""},
		{"a standby that is not waited for", map[string]string{"synchronous_standby_names": "one", "synchronous_commit": "local"}, store.LevelDisk, ""},
		{"a standby that only receives", map[string]string{"synchronous_standby_names": "one", "synchronous_commit": "remote_write"}, store.LevelDisk, ""},
		{"commits that wait for nothing", map[string]string{"synchronous_commit": "off"}, store.LevelRelaxed, "synchronous_commit"},
		{"no fsync", map[string]string{"fsync": "off", "synchronous_standby_names": "one"}, store.LevelRelaxed, "fsync"},
		{"torn pages", map[string]string{"full_page_writes": "off"}, store.LevelDisk, "full_page_writes"},
		{"a standby", map[string]string{"pg_is_in_recovery": "on", "transaction_read_only": "on"}, store.LevelDisk, "pg_is_in_recovery"},
		{"a read-only primary", map[string]string{"transaction_read_only": "on"}, store.LevelDisk, "transaction_read_only"},
	} {
		t.Run(c.name+" has its level", func(t *testing.T) {
			settings := map[string]string{}
			maps.Copy(settings, safe)
			maps.Copy(settings, c.change)
			d := judge(settings)
			if d.Level != c.level || (c.unsafe == "") != (len(d.Unsafe) == 0) {
				t.Errorf("level %s, unsafe %q", d.Level, d.Unsafe)
			}
			if c.unsafe != "" && (len(d.Unsafe) != 1 || !strings.HasPrefix(d.Unsafe[0], c.unsafe+` is "`+settings[c.unsafe])) {
				t.Errorf("unsafe: %q", d.Unsafe)
			}
		})
	}
	t.Run("what the server really has is looked at", func(t *testing.T) {
		_, database := open(t, Options{})
		server := pgtest.Shared(t)
		server.Exec(t, database, "ALTER DATABASE "+database+" SET synchronous_commit = off")
		s := mustOpen(t, server.URL(database), nil)
		t.Cleanup(func() { mustClose(t, s) })
		d, err := s.Durability(t.Context())
		if err != nil || d.Level != store.LevelRelaxed || len(d.Unsafe) != 1 || !strings.Contains(d.Unsafe[0], `synchronous_commit is "off"`) {
			t.Errorf("the level is %s, %q, %v", d.Level, d.Unsafe, err)
		}
	})
}

func TestDamage(t *testing.T) {
	for name, damage := range map[string]string{
		"a record with a changed bit":         "UPDATE semel.semel_records SET record = set_bit(record, 99, 1 - get_bit(record, 99))",
		"a result with a changed bit":         "UPDATE semel.semel_records SET result = set_bit(result, 9, 1 - get_bit(result, 9))",
		"a record that is cut off":            "UPDATE semel.semel_records SET record = substr(record, 1, 3)",
		"a revision that is not the record's": "UPDATE semel.semel_records SET revision = sha256(revision)",
		"a result that is gone":               "UPDATE semel.semel_records SET result = NULL",
		"the record of another identity":      "UPDATE semel.semel_records SET id = sha256('k2')",
	} {
		t.Run(name+" is noticed", func(t *testing.T) {
			s, database := open(t, Options{})
			rec := numbered("k", 1)
			rec.Result.Data = []byte("result")
			rec = put(t, s, rec, store.Revision{})
			pgtest.Shared(t).Exec(t, database, damage)
			page, err := s.Due(t.Context(), store.DueQuery{Until: rec.NextAt, Limit: 10})
			if err != nil || len(page.Records) > 0 || len(page.Unreadable) != 1 || !errors.Is(page.Unreadable[0], codec.ErrCorrupt) {
				t.Errorf("Due gives %d records and %v, %v", len(page.Records), page.Unreadable, err)
			}
			if strings.Contains(damage, "id =") {
				return
			}
			if _, err := s.Get(t.Context(), rec.ID); !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("Get gives %v", err)
			}
			if _, applied, err := s.Apply(t.Context(), store.Write{Record: new(numbered("k", 2))}); !errors.Is(err, codec.ErrCorrupt) || applied {
				t.Errorf("Apply gives applied %v, %v", applied, err)
			}
			put(t, s, numbered("other", 1), store.Revision{})
		})
	}
}

func TestArchive(t *testing.T) {
	s, database := open(t, Options{})
	rec := numbered("k", 1)
	rec.State, rec.Disposition, rec.Result.Data = semel.Completed, semel.DispositionCompleted, []byte("result")
	recs := []semel.Record{rec, numbered("other", 2)}
	for range 2 { // a second time changes nothing
		if err := s.Archive(t.Context(), recs); err != nil {
			t.Fatal(err)
		}
	}
	var n int
	var r row
	conn := pgtest.Shared(t).Conn(t, database)
	err := conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM semel.idempotency_archive), id, revision, record, result
		FROM semel.idempotency_archive WHERE key = 'k' AND state = 'completed'`).Scan(&n, &r.id, &r.revision, &r.record, &r.response)
	if err != nil || n != 2 {
		t.Fatalf("%d rows, %v", n, err)
	}
	if got, err := r.decode(); err != nil || string(got.Result.Data) != "result" || got.ID != rec.ID {
		t.Errorf("the archived record is %v, %v", got, err)
	}
}
