package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/semelhq/semel/internal/rig/servertest"
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
`

// Pooler starts a pooler in front of the server, with this many sessions for each database,
// and stops it at the end of the test.
func (s *Server) Pooler(tb testing.TB, sessions int) *Pooler {
	tb.Helper()
	servertest.Need(tb, "pgbouncer", "pgbouncer")
	dir, err := newDir()
	servertest.Check(tb, err)
	p := &Pooler{dir: dir}
	config := filepath.Join(dir, "ini")
	process := servertest.Process{
		Dir:     dir,
		Command: func() (*exec.Cmd, error) { return command("pgbouncer", config) },
		Answers: func(ctx context.Context) error { return answers(ctx, p.URL("postgres")) },
	}
	tb.Cleanup(func() {
		if err := errors.Join(process.End(syscall.SIGQUIT), os.RemoveAll(dir)); err != nil {
			tb.Error(err)
		}
	})
	servertest.Check(tb, os.WriteFile(config, fmt.Appendf(nil, poolerConfig, p.dir, s.Dir, sessions), 0o644))
	servertest.Check(tb, process.Start())
	return p
}

// URL is the address of a database behind the pooler.
func (p *Pooler) URL(database string) string { return address(p.dir, database) }
