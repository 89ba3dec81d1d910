package pgtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/semelhq/semel/internal/stage"
)

// Pooler is a PgBouncer in front of a server: a connection pool that assigns a session for one
// transaction at a time, a different one each time. URL may be called concurrently.
type Pooler struct{ dir string }

// poolerConfig is a format for the pooler's directory, the server's directory, and the number of
// sessions for each database. The next client gets a session with whatever the last one left
// in it.
const poolerConfig = `[databases]
* = host=%[2]s user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = %[1]s
listen_port = 5432
auth_type = any
pool_mode = transaction
server_round_robin = 1
default_pool_size = %[3]d
server_idle_timeout = 1
max_client_conn = 1000
logfile = %[1]s/log
`

// Pooler starts a pooler in front of the server, with this many sessions for each database,
// and stops it at the end of the test.
func (s *Server) Pooler(tb testing.TB, sessions int) *Pooler {
	tb.Helper()
	needProgram(tb, "pgbouncer", "PgBouncer", "pgbouncer")
	dir, err := newDir()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	p := &Pooler{dir: dir}
	stop, err := p.start(s, sessions)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(stop)
	return p
}

func (p *Pooler) start(s *Server, sessions int) (stop func(), err error) {
	config := filepath.Join(p.dir, "ini")
	if err := os.WriteFile(config, fmt.Appendf(nil, poolerConfig, p.dir, s.dir, sessions), 0o644); err != nil {
		return nil, err
	}
	cmd, err := command("pgbouncer", "--quiet", config)
	if err != nil {
		return nil, err
	}
	process, err := stage.Run(cmd)
	if err != nil {
		return nil, err
	}
	if err := answers(p.URL("postgres"), process); err != nil {
		process.Kill()
		log, _ := os.ReadFile(filepath.Join(p.dir, "log"))
		return nil, errors.Join(err, errors.New(string(log)))
	}
	return process.Kill, nil
}

// URL is the address of a database behind the pooler.
func (p *Pooler) URL(database string) string { return address(p.dir, database) }
