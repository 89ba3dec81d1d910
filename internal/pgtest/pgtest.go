// Package pgtest runs private PostgreSQL servers for tests. Each has a directory of its own,
// with a socket to connect to, is as durable as in production, and ends with the test, even if
// the test process is killed.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/internal/stage"
)

// RequireEnv names an environment variable. If it is 1, a test fails instead of being skipped
// when PostgreSQL isn't installed.
const RequireEnv = "SEMEL_REQUIRE_SERVICES"

// Options of a server. The zero value is a single server with PostgreSQL's defaults.
type Options struct {
	// Settings are added to postgresql.conf.
	Settings map[string]string
	// Env is added to the environment of the server.
	Env []string
}

// Server is a private PostgreSQL server. Only URL may be called concurrently.
type Server struct {
	dir, data string
	env       []string
	process   *stage.Process // the postmaster; nil if it was stopped or killed
}

// patience bounds how long a server may take to start or to stop.
const patience = 30 * time.Second

// Start starts a server, and stops it at the end of the test.
func Start(tb testing.TB, o *Options) *Server {
	tb.Helper()
	need(tb)
	s, err := start(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.remove(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// need skips the test if PostgreSQL isn't installed.
func need(tb testing.TB) {
	tb.Helper()
	needProgram(tb, "initdb", "PostgreSQL server", "postgresql")
}

// needProgram skips the test if a program of a service isn't installed.
func needProgram(tb testing.TB, program, service, pkg string) {
	tb.Helper()
	if _, err := find(program); err != nil {
		if os.Getenv(RequireEnv) == "1" {
			tb.Fatalf("%s is required: %v", service, err)
		}
		tb.Skipf("there is no %s: install the package %s", service, pkg)
	}
}

// template is a data directory that a process makes once and copies for each server, because
// initdb takes a second.
var template = sync.OnceValues(func() (string, error) {
	dir, err := newDir()
	if err != nil {
		return "", err
	}
	leftovers.Store(&dir)
	return dir, run("initdb", "-D", filepath.Join(dir, "data"), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions")
})

var leftovers atomic.Pointer[string]

// Main runs the tests of a package and removes what their servers share. If your package starts
// servers, call it from TestMain and exit with its result.
func Main(m *testing.M) int {
	code := m.Run()
	var err error
	if shared.s != nil {
		err = shared.s.remove()
	}
	// What the servers of the process are copied from.
	if dir := leftovers.Load(); dir != nil {
		err = errors.Join(err, os.RemoveAll(*dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// start starts a server over a copy of the template.
func start(o *Options) (*Server, error) {
	from, err := template()
	if err != nil {
		return nil, err
	}
	dir, err := newDir()
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, data: filepath.Join(dir, "data")}
	if err := run("cp", "-a", filepath.Join(from, "data"), s.data); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	var settings map[string]string
	if o != nil {
		settings, s.env = o.Settings, o.Env
	}
	if err := s.configure(settings); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// configure appends settings to postgresql.conf.
func (s *Server) configure(settings map[string]string) error {
	all := map[string]string{
		"listen_addresses": "", "unix_socket_directories": s.dir, "max_connections": "300",
		"shared_buffers": "64MB", "wal_keep_size": "64MB", "hot_standby_feedback": "on",
	}
	maps.Copy(all, settings)
	var b strings.Builder
	for name, value := range all {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(value, "'", "''"))
	}
	f, err := os.OpenFile(filepath.Join(s.data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(b.String())
	return errors.Join(err, f.Close())
}

// start starts the postmaster and waits until it accepts connections. After a kill, it can't
// start until the last old processes have ended.
func (s *Server) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := s.launch()
		if !errors.Is(err, errEnded) || !strings.Contains(s.Log(), "pre-existing shared memory block") {
			return err
		}
		pause := time.NewTimer(20 * time.Millisecond)
		select {
		case <-ctx.Done():
			return err
		case <-pause.C:
		}
	}
}

var errEnded = errors.New("the server ended while it started")

func (s *Server) launch() error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, err := command("postgres", "-D", s.data)
	if err != nil {
		return err
	}
	cmd.Env = append(cmd.Env, s.env...)
	cmd.Stdout, cmd.Stderr = log, log
	if s.process, err = stage.Run(cmd); err != nil {
		return err
	}
	if err := answers(s.URL("postgres"), s.process); err != nil {
		return fmt.Errorf("%w:\n%s", err, s.Log())
	}
	return nil
}

// answers waits until a server answers, or until its process has ended.
func answers(url string, p *stage.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.Exited():
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", err)
		case <-tick.C:
		}
	}
}

// Log is the end of the server's log.
func (s *Server) Log() string {
	b, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

// URL is the address of a database of the server.
func (s *Server) URL(database string) string { return address(s.dir, database) }

// address is the URL of a database over the socket in a directory.
func address(dir, database string) string {
	return fmt.Sprintf("postgres://postgres@/%s?host=%s&sslmode=disable", database, dir)
}

// Conn connects to a database until the end of the test.
func (s *Server) Conn(tb testing.TB, database string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), s.URL(database))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(context.WithoutCancel(tb.Context())) })
	return conn
}

// Exec runs a statement in a database.
func (s *Server) Exec(tb testing.TB, database, sql string) {
	tb.Helper()
	if err := s.exec(tb.Context(), database, sql); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

func (s *Server) exec(ctx context.Context, database, sql string) error {
	conn, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

var databases atomic.Int64

// Database returns the name of an empty database, which the test has until its end. If the
// server is [Shared], the database is then emptied for another test: it has some 300 files, and
// may take half a second to make and remove.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	var name string
	shared.mu.Lock()
	if s != shared.s {
		shared.mu.Unlock()
		return s.newDatabase(tb)
	}
	if n := len(shared.free); n > 0 {
		name, shared.free = shared.free[n-1], shared.free[:n-1]
	}
	shared.mu.Unlock()
	if name == "" {
		name = s.newDatabase(tb)
	}
	tb.Cleanup(func() {
		// A database that can't be emptied isn't used again.
		if s.empty(context.WithoutCancel(tb.Context()), name) == nil {
			shared.mu.Lock()
			defer shared.mu.Unlock()
			shared.free = append(shared.free, name)
		}
	})
	return name
}

func (s *Server) newDatabase(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	s.Exec(tb, "postgres", "CREATE DATABASE "+name)
	return name
}

// empty drops everything that a test has created in a database.
func (s *Server) empty(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, sql := range []string{
		"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
		`DO $$ DECLARE name text; BEGIN
			FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
				EXECUTE format('DROP SCHEMA %I CASCADE', name);
			END LOOP;
		END $$`,
		"CREATE SCHEMA public",
		"ALTER DATABASE " + name + " RESET ALL",
	} {
		if err := s.exec(ctx, name, sql); err != nil {
			return err
		}
	}
	return nil
}

// shared is the server that the tests of a package share.
var shared struct {
	mu   sync.Mutex
	s    *Server
	err  error
	free []string // databases that are empty
}

// Shared returns the server that the tests of a package share; [Main] stops it. Take a
// [Server.Database] of your own, and don't stop the server.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	need(tb)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.s == nil && shared.err == nil {
		shared.s, shared.err = start(nil)
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.s
}

// newDir makes a directory that the server's user owns. Its path is short, because the path of
// a socket must be.
func newDir() (string, error) {
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		return "", err
	}
	if err := own(dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// run runs a program as the server's user.
func run(name string, args ...string) error {
	cmd, err := command(name, args...)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}
