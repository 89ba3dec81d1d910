// Package redistest starts private Redis servers for tests: a single one, or a Cluster of
// six. They listen on free ports of the loopback interface, keep their data in a temporary
// directory, and end with the test, even if its process is killed.
//
// If no server is installed, the test is skipped with a line that says what to install; with
// SEMEL_REQUIRE_SERVICES=1 it fails instead.
//
// Servers get the environment of the process, and what a method Environ of the [testing.TB]
// adds to it.
package redistest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel/internal/rig/servertest"
)

// program is the program to run, looked up in PATH. Set SEMEL_REDIS_SERVER to run another one,
// such as valkey-server.
var program = cmp.Or(os.Getenv("SEMEL_REDIS_SERVER"), "redis-server")

// patience bounds how long a command may take.
const patience = 2 * time.Minute

// Server is a private redis-server.
type Server struct {
	servertest.Server
	// Addr is host and port. A restart doesn't change it.
	Addr string

	args   []string
	port   int
	client rueidis.Client
}

// Start starts a single server. It syncs its append-only file as appendfsync says: "always",
// "everysec" or "no"; with "" it keeps nothing on disk. Further settings are pairs of name and
// value.
func Start(tb testing.TB, appendfsync string, settings ...string) *Server {
	tb.Helper()
	s := newServer(tb, append(persistence(appendfsync), settings...)...)
	s.Restart()
	return s
}

func persistence(appendfsync string) []string {
	if appendfsync == "" {
		return []string{"appendonly", "no"}
	}
	return []string{"appendonly", "yes", "appendfsync", appendfsync}
}

// newServer prepares a server without starting it.
func newServer(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	servertest.Need(tb, program, "redis-server")
	s := &Server{port: servertest.FreePort(tb)}
	s.TB, s.Graceful = tb, syscall.SIGTERM
	s.Process = servertest.Process{Dir: tb.TempDir(), Command: s.command, Answers: s.answers}
	s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
	s.args = []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.Dir, "--save", "",
		"--enable-debug-command", "yes", "--protected-mode", "no",
	}
	for i := 0; i+1 < len(settings); i += 2 {
		s.args = append(s.args, "--"+settings[i], settings[i+1])
	}
	tb.Cleanup(func() {
		if s.client != nil {
			s.client.Close()
		}
		if s.Running() {
			s.Kill()
		}
	})
	return s
}

// URL is the address for redisstore.Open.
func (s *Server) URL() string { return "redis://" + s.Addr }

func (s *Server) command() (*exec.Cmd, error) {
	path, err := servertest.Find(program)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, s.args...)
	if e, ok := s.TB.(interface{ Environ() []string }); ok {
		cmd.Env = append(os.Environ(), e.Environ()...)
	}
	return cmd, nil
}

func (s *Server) answers(context.Context) error {
	if s.client == nil {
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableCache: true, PipelineMultiplex: -1,
			Dialer: net.Dialer{Timeout: time.Second, KeepAlive: time.Second}, ConnWriteTimeout: 10 * time.Second,
		})
		if err != nil {
			return err
		}
		s.client = c
	}
	_, err := s.Try("PING")
	return err
}

// Do runs a command on this server and returns the reply as text.
func (s *Server) Do(args ...string) string {
	s.TB.Helper()
	answer, err := s.Try(args...)
	if err != nil {
		s.TB.Fatalf("%s on %s: %v", args[0], s.Addr, err)
	}
	return answer
}

// Try is Do for a command that may fail.
func (s *Server) Try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, err := s.client.Do(ctx, s.client.B().Arbitrary(args...).Build()).ToMessage()
	switch {
	case rueidis.IsRedisNil(err):
		return "", nil
	case err != nil:
		return "", err
	case m.IsInt64():
		n, err := m.AsInt64()
		return strconv.FormatInt(n, 10), err
	case m.IsArray():
		list, err := m.AsStrSlice()
		return fmt.Sprintf("%q", list), err
	}
	return m.ToString()
}
