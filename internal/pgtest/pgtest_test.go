package pgtest

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestServer(t *testing.T) {
	t.Run("a killed server keeps what it has acknowledged", func(t *testing.T) {
		s := Start(t, nil)
		db := s.Database(t)
		s.Exec(t, db, "CREATE TABLE kept (n int)")
		s.Exec(t, db, "INSERT INTO kept VALUES (7)")
		s.Kill(t)
		if conn, err := pgx.Connect(t.Context(), s.URL(db)); err == nil {
			_ = conn.Close(t.Context())
			t.Fatal("a killed server answers")
		}
		s.Restart(t)
		var n int
		var fsync string
		if err := s.Conn(t, db).QueryRow(t.Context(), "SELECT n, current_setting('fsync') FROM kept").Scan(&n, &fsync); err != nil || n != 7 || fsync != "on" {
			t.Fatalf("after the restart: %d, fsync %s, %v", n, fsync, err)
		}
	})
	t.Run("a standby follows and can take over", func(t *testing.T) {
		s := Start(t, nil)
		sb := s.Standby(t, "one")
		s.Await(t, "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming' AND application_name = 'one'")
		s.Exec(t, "postgres", "CREATE TABLE kept (n int)")
		sb.Await(t, "SELECT to_regclass('kept') IS NOT NULL")
		s.Kill(t)
		sb.Promote(t)
		sb.Exec(t, "postgres", "INSERT INTO kept VALUES (1)")
	})
}
