// Package pgtest runs private PostgreSQL servers for tests: in a directory of
// their own, reached by a socket in that directory, durable as in production, and
// gone when the test has ended, also when the test process dies first.
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
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/internal/pgserver"
)

// RequireEnv names the environment variable that, set to 1, turns a missing
// server into a failure.
const RequireEnv = "SEMEL_REQUIRE_SERVICES"

// Options of a server. The zero value is a single server with its defaults.
type Options struct {
	// Settings are added to postgresql.conf.
	Settings map[string]string
	// Env is added to the environment of the server.
	Env []string
}

// Server is a private PostgreSQL server. Its methods are for one goroutine at a
// time, except URL.
type Server struct {
	dir, data string
	env       []string
	cmd       *exec.Cmd
	ended     <-chan struct{} // closed when the postmaster has ended
}

// patience bounds how long a server may take to start or to stop.
const patience = 30 * time.Second

// Start starts a server and stops it when the test has ended.
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

// need ends the test where there is no PostgreSQL.
func need(tb testing.TB) {
	tb.Helper()
	needProgram(tb, "initdb", "PostgreSQL server", "postgresql")
}

// needProgram ends the test where a program of a service is not installed.
func needProgram(tb testing.TB, program, service, pkg string) {
	tb.Helper()
	if _, err := pgserver.Find(program); err != nil {
		if os.Getenv(RequireEnv) == "1" {
			tb.Fatalf("%s is required: %v", service, err)
		}
		tb.Skipf("there is no %s: install the package %s", service, pkg)
	}
}

// template is a data directory that is made once in a process and copied for each
// server, for making one takes a second.
var template = sync.OnceValues(func() (string, error) {
	dir, err := newDir()
	if err != nil {
		return "", err
	}
	leftovers.Store(&dir)
	return dir, run("initdb", "-D", filepath.Join(dir, "data"), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions")
})

var leftovers atomic.Pointer[string]

// Main runs the tests of a package and removes what their servers shared. A
// package that starts servers calls it from TestMain and exits with its result.
func Main(m *testing.M) int {
	code := m.Run()
	if s, _ := shared.get(); s != nil {
		if err := s.remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	if err := RemoveTemplate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// RemoveTemplate removes what the servers of a process are copied from. A program that
// does not call [Main] calls it at its end.
func RemoveTemplate() error {
	if dir := leftovers.Load(); dir != nil {
		return os.RemoveAll(*dir)
	}
	return nil
}

// start makes a server from the template.
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
		"listen_addresses": "", "unix_socket_directories": s.dir, "max_connections": "100",
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

// start starts the postmaster and waits until it accepts connections. After a kill
// the last processes may still be on their way out, and keep it from starting.
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
	cmd, err := pgserver.Command("postgres", "-D", s.data)
	if err != nil {
		return err
	}
	cmd.Env = append(cmd.Env, s.env...)
	cmd.Stdout, cmd.Stderr = log, log
	ended, err := pgserver.Start(cmd)
	if err != nil {
		return err
	}
	s.cmd, s.ended = cmd, ended
	return s.ready()
}

// ready waits until the server answers.
func (s *Server) ready() error {
	if err := answers(s.URL("postgres"), s.ended); err != nil {
		return fmt.Errorf("%w:\n%s", err, s.Log())
	}
	return nil
}

// answers waits until a server answers, which closes ended if it has ended.
func answers(url string, ended <-chan struct{}) error {
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
		case <-ended:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", err)
		case <-tick.C:
		}
	}
}

// Log is the end of what the server has logged.
func (s *Server) Log() string {
	b, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

// URL is the address of a database of the server.
func (s *Server) URL(database string) string { return address(s.dir, database) }

// address is that of a database by the socket in a directory.
func address(dir, database string) string {
	return fmt.Sprintf("postgres://postgres@/%s?host=%s&sslmode=disable", database, dir)
}

// Conn connects to a database until the test has ended.
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

// Database makes a new database and returns its name. It goes with the server.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	s.Exec(tb, "postgres", "CREATE DATABASE "+name)
	return name
}

// shared is the server that the tests of a package share.
var shared onceServer

type onceServer struct {
	mu   sync.Mutex
	done bool
	s    *Server
	err  error
}

func (o *onceServer) get() (*Server, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.s, o.err
}

// Shared is a server that the tests of a package share; [Main] stops it. They take
// a database each and don't stop it.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	need(tb)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.done {
		shared.s, shared.err = start(nil)
		shared.done = true
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.s
}

// newDir makes a directory that the server's user owns. Its path is short, for a
// socket's may not be long.
func newDir() (string, error) {
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		return "", err
	}
	if err := pgserver.Own(dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// run runs a program as the server's user.
func run(name string, args ...string) error {
	cmd, err := pgserver.Command(name, args...)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}
