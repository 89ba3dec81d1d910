package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// StartSentinel starts a Sentinel that watches a master under a name, and alone decides that
// it is down.
func StartSentinel(tb testing.TB, name string, master *Server) *Server {
	tb.Helper()
	s := newServer(tb)
	host, port, err := net.SplitHostPort(master.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(s.Dir, "sentinel.conf") // it writes to it
	text := fmt.Sprintf("sentinel monitor %s %s %s 1\nsentinel down-after-milliseconds %[1]s 60000\nsentinel failover-timeout %[1]s 60000\n", name, host, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	s.args = []string{file, "--sentinel", "--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.Dir, "--protected-mode", "no"}
	s.Restart()
	return s
}
