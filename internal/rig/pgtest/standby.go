package pgtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/semelhq/semel/internal/rig/servertest"
)

// Restart starts a stopped or killed server over the same data.
func (s *Server) Restart() {
	s.TB.Helper()
	servertest.Check(s.TB, s.TryRestart())
}

// TryRestart is Restart outside of a test's goroutine.
func (s *Server) TryRestart() error { return errors.Join(s.End(s.Graceful), s.start()) }

// Standby starts a standby that replicates the server under a name, and stops it at the end of
// the test.
func (s *Server) Standby(tb testing.TB, name string) *Server {
	tb.Helper()
	sb, err := newServer(nil)
	servertest.Check(tb, err)
	sb.endWith(tb)
	servertest.Check(tb, run("pg_basebackup", "-h", s.Dir, "-U", "postgres", "-D", sb.data, "-c", "fast", "-X", "stream", "--no-sync"))
	signal := filepath.Join(sb.data, "standby.signal")
	servertest.Check(tb, errors.Join(os.WriteFile(signal, nil, 0o600), own(signal)))
	servertest.Check(tb, sb.configure(map[string]string{
		"primary_conninfo":          fmt.Sprintf("host=%s user=postgres application_name=%s", s.Dir, name),
		"synchronous_standby_names": "", "wal_receiver_status_interval": "1s", "wal_retrieve_retry_interval": "100ms",
	}))
	servertest.Check(tb, sb.start())
	return sb
}

// Promote makes a standby a primary.
func (s *Server) Promote(tb testing.TB) {
	tb.Helper()
	s.Exec(tb, "postgres", "SELECT pg_promote(true, 30)")
}

// Await waits until a query returns true.
func (s *Server) Await(tb testing.TB, query string) {
	tb.Helper()
	conn := s.Conn(tb, "postgres")
	servertest.Eventually(tb, query, func() error {
		var is *bool
		if err := conn.QueryRow(tb.Context(), query).Scan(&is); err != nil {
			tb.Fatalf("%s: %v", query, err)
		}
		if is == nil || !*is {
			return errors.New("it returns no true")
		}
		return nil
	})
}
