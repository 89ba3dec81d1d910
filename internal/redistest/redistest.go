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
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel/internal/stage"
)

// binary is the program to run, looked up in PATH. Set SEMEL_REDIS_SERVER to run another one,
// such as valkey-server.
func binary(tb testing.TB) string {
	tb.Helper()
	name := os.Getenv("SEMEL_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			tb.Fatalf("%s is required and not found: install the package redis-server", name)
		}
		tb.Skipf("needs %s: install the package redis-server", name)
	}
	return path
}

// patience bounds every wait for a server. It is long because machines are busy; where nothing
// is wrong, nobody waits for so long.
const patience = 2 * time.Minute

// Server is a redis-server process that you can kill, pause and restart over the same data.
// Its methods fail the test if they can't do their work. Don't call them concurrently.
type Server struct {
	// Addr is host and port. A restart doesn't change it.
	Addr string
	// Dir holds its data and its log.
	Dir string

	tb      testing.TB
	path    string
	args    []string
	port    int
	process *stage.Process
	client  rueidis.Client
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
	s := &Server{tb: tb, path: binary(tb), Dir: tb.TempDir(), port: freePort(tb)}
	s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
	s.args = []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.Dir, "--save", "",
		"--logfile", filepath.Join(s.Dir, "log"), "--enable-debug-command", "yes", "--protected-mode", "no",
	}
	for i := 0; i+1 < len(settings); i += 2 {
		s.args = append(s.args, "--"+settings[i], settings[i+1])
	}
	tb.Cleanup(func() {
		if s.client != nil {
			s.client.Close()
		}
		if s.process != nil {
			s.process.Kill()
		}
	})
	return s
}

// URL is the address for redisstore.Open.
func (s *Server) URL() string { return "redis://" + s.Addr }

// Restart starts the server over its data, and returns once it answers. It must not be
// running.
func (s *Server) Restart() {
	s.tb.Helper()
	cmd := exec.Command(s.path, s.args...)
	if e, ok := s.tb.(interface{ Environ() []string }); ok {
		cmd.Env = append(os.Environ(), e.Environ()...)
	}
	p, err := stage.Run(cmd)
	if err != nil {
		s.tb.Fatalf("start %s: %v", s.path, err)
	}
	s.process = p
	Eventually(s.tb, "the server "+s.Addr+" answers", func() error {
		select {
		case <-p.Exited():
			log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
			s.tb.Fatalf("%s has ended:\n%s", s.path, log)
		default:
		}
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
	})
}

// Kill kills the process by SIGKILL and returns once it is gone.
func (s *Server) Kill() {
	s.tb.Helper()
	if !s.Running() {
		s.tb.Fatalf("the server %s had ended before it was killed", s.Addr)
	}
	s.process.Kill()
}

// Pause stops the process as if its machine hung: until Resume, connections stay open and
// get no answers.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume continues a paused process.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig os.Signal) {
	s.tb.Helper()
	if err := s.process.Signal(sig); err != nil {
		s.tb.Fatalf("signal %v to the server %s: %v", sig, s.Addr, err)
	}
}

// Do runs a command on this server and returns the reply as text.
func (s *Server) Do(args ...string) string {
	s.tb.Helper()
	answer, err := s.Try(args...)
	if err != nil {
		s.tb.Fatalf("%s on %s: %v", args[0], s.Addr, err)
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

// Eventually calls f until it returns nil, and fails the test if it never does.
func Eventually(tb testing.TB, what string, f func() error) {
	tb.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end.C:
			tb.Fatalf("it did not come true that %s: %v", what, err)
		}
	}
}

// taken has the ports that freePort has returned: their servers may not listen yet.
var taken struct {
	sync.Mutex
	ports map[int]bool
}

// Ports are chosen below those that systems give to whoever asks for any, and to
// connections: one of these might take a port before its server listens.
const lowestPort, highestPort = 15000, 32000

func freePort(tb testing.TB) int {
	tb.Helper()
	taken.Lock()
	defer taken.Unlock()
	if taken.ports == nil {
		taken.ports = map[int]bool{}
	}
	var failed error
	for range 1000 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if taken.ports[port] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			failed = err // in use
			continue
		}
		if err := l.Close(); err != nil {
			tb.Fatal(err)
		}
		taken.ports[port] = true
		return port
	}
	tb.Fatalf("no port is free: %v", failed)
	return 0
}
