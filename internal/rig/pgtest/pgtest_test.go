package pgtest

import (
	"context"
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
		s.Kill()
		if conn, err := pgx.Connect(t.Context(), s.URL(db)); err == nil {
			_ = conn.Close(t.Context())
			t.Fatal("a killed server answers")
		}
		s.Restart()
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
		s.Kill()
		sb.Promote(t)
		sb.Exec(t, "postgres", "INSERT INTO kept VALUES (1)")
	})
	t.Run("a pooler lends another session for each transaction", func(t *testing.T) {
		s := Start(t, nil)
		url := s.Pooler(t, 8).URL("postgres")
		connect := func() *pgx.Conn {
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
			return conn
		}
		conn, other := connect(), connect()
		tx, err := other.Begin(t.Context()) // so that there are two
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		sessions := map[int]bool{}
		for range 20 {
			var pid int
			if err := conn.QueryRow(t.Context(), "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid); err != nil {
				t.Fatal(err)
			}
			sessions[pid] = true
		}
		if len(sessions) < 2 || sessions[int(conn.PgConn().PID())] {
			t.Errorf("20 transactions have used %d sessions; the client was told of one of them: %v", len(sessions), sessions[int(conn.PgConn().PID())])
		}
	})
}

func TestADatabaseOfTheSharedServerIsUsedAgain(t *testing.T) {
	var names []string
	for range 2 {
		t.Run("empty", func(t *testing.T) {
			s := Shared(t)
			db := s.Database(t)
			names = append(names, db)
			var empty bool
			query := "SELECT to_regclass('public.kept') IS NULL AND to_regclass('other.kept') IS NULL AND current_setting('lock_timeout') = '0'"
			if err := s.Conn(t, db).QueryRow(t.Context(), query).Scan(&empty); err != nil || !empty {
				t.Errorf("it is empty: %v, %v", empty, err)
			}
			s.Exec(t, db, "CREATE TABLE public.kept (n int)")
			s.Exec(t, db, "CREATE SCHEMA other")
			s.Exec(t, db, "CREATE TABLE other.kept (n int)")
			s.Exec(t, db, "ALTER DATABASE "+db+" SET lock_timeout = '1s'")
		})
	}
	if names[0] != names[1] {
		t.Errorf("it is not used again: %v", names)
	}
}
