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
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/internal/rig/servertest"
)

// Options of a server. The zero value is a single server with PostgreSQL's defaults.
type Options struct {
	// Settings are added to postgresql.conf.
	Settings map[string]string
	// Env is added to the environment of the server.
	Env []string
}

// Server is a private PostgreSQL server. Only URL may be called concurrently.
type Server struct {
	servertest.Server
	data string
	port string // the setting; empty: the default
}

// patience bounds how long a question to a server may take.
const patience = 30 * time.Second

// Start starts a server, and stops it at the end of the test.
func Start(tb testing.TB, o *Options) *Server {
	tb.Helper()
	need(tb)
	s, err := start(o)
	servertest.Check(tb, err)
	s.endWith(tb)
	return s
}

// endWith removes the server at the end of a test.
func (s *Server) endWith(tb testing.TB) {
	s.TB = tb
	tb.Cleanup(func() {
		if err := s.remove(); err != nil {
			tb.Error(err)
		}
	})
}

// need skips the test if PostgreSQL isn't installed.
func need(tb testing.TB) {
	tb.Helper()
	servertest.Need(tb, "initdb", "postgresql")
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
func start(o *Options) (s *Server, err error) {
	from, err := template()
	if err != nil {
		return nil, err
	}
	if o == nil {
		o = &Options{}
	}
	if s, err = newServer(o.Env); err != nil {
		return nil, err
	}
	if err = run("cp", "-a", filepath.Join(from, "data"), s.data); err == nil {
		err = s.configure(o.Settings)
	}
	if err == nil {
		err = s.start()
	}
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// newServer prepares a server that has no data yet.
func newServer(env []string) (*Server, error) {
	dir, err := newDir()
	if err != nil {
		return nil, err
	}
	s := &Server{data: filepath.Join(dir, "data")}
	s.Graceful = syscall.SIGINT
	s.Process = servertest.Process{
		Dir:     dir,
		Answers: func(ctx context.Context) error { return answers(ctx, s.URL("postgres")) },
		Command: func() (*exec.Cmd, error) {
			cmd, err := command("postgres", "-D", s.data)
			if err == nil {
				cmd.Env = append(cmd.Env, env...)
			}
			return cmd, err
		},
	}
	return s, nil
}

// configure appends settings to postgresql.conf.
func (s *Server) configure(settings map[string]string) error {
	all := map[string]string{
		"listen_addresses": "", "unix_socket_directories": s.Dir, "max_connections": "300",
		"shared_buffers": "64MB", "wal_keep_size": "64MB", "hot_standby_feedback": "on",
	}
	maps.Copy(all, settings)
	s.port = settings["port"]
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

// start starts the postmaster. After a kill, it can't start until the last old processes have
// ended.
func (s *Server) start() error {
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := s.Start()
		if !errors.Is(err, servertest.ErrEnded) || !strings.Contains(err.Error(), "pre-existing shared memory block") || time.Since(began) > patience {
			return err
		}
	}
}

// answers connects to a server.
func answers(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err == nil {
		err = conn.Close(ctx)
	}
	return err
}

// remove ends the server and removes its directory, without writing what is in memory: that
// takes half a minute with many databases.
func (s *Server) remove() error {
	return errors.Join(s.End(syscall.SIGQUIT), os.RemoveAll(s.Dir))
}

// URL is the address of a database of the server.
func (s *Server) URL(database string) string {
	url := address(s.Dir, database)
	if s.port != "" {
		url += "&port=" + s.port
	}
	return url
}

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
	if err := s.Try(tb.Context(), database, sql); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// Try is Exec outside of a test's goroutine.
func (s *Server) Try(ctx context.Context, database, sql string) error {
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
		if err := s.Try(ctx, name, sql); err != nil {
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

// command is a program of the server with nothing to read, which runs as a user that may run
// a server.
func command(name string, args ...string) (*exec.Cmd, error) {
	path, err := servertest.Find(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	return cmd, confine(cmd)
}
