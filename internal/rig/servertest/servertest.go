// Package servertest runs a private server of a database for a test, which may stop, kill,
// pause and start it again over the same data. The server ends with the test, even if the
// process of the test is killed.
//
// Packages pgtest and redistest know how to start one and how to ask it whether it answers.
package servertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// patience bounds every wait for a server. It is long because machines are busy; where nothing
// is wrong, nobody waits for so long.
const patience = 2 * time.Minute

// Process is the program of a server, each time that it runs. Its methods return errors, for
// callers who aren't in the goroutine of a test. Don't call them concurrently.
type Process struct {
	// Command makes the program, except for its output, which goes to a log.
	Command func() (*exec.Cmd, error)
	// Answers asks the server whether it serves.
	Answers func(ctx context.Context) error
	// Dir holds the log, and goes away after the server.
	Dir string

	now *stage.Process // nil before the first start
}

// ErrEnded means that the program has ended while it was started.
var ErrEnded = errors.New("the server ended while it started")

// Start starts the server over its data, and returns once it answers. It must not be running.
func (p *Process) Start() error {
	log, err := os.OpenFile(filepath.Join(p.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, err := p.Command()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if p.now, err = stage.Run(cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		if err = p.Answers(ctx); err == nil {
			return nil
		}
		select {
		case <-p.now.Exited():
			return fmt.Errorf("%w:\n%s", ErrEnded, p.Log())
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w\n%s", err, p.Log())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Log is the end of what the server has printed.
func (p *Process) Log() string {
	b, err := os.ReadFile(filepath.Join(p.Dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

// Running reports whether the program runs, even if it is paused.
func (p *Process) Running() bool {
	if p.now == nil {
		return false
	}
	select {
	case <-p.now.Exited():
		return false
	default:
		return true
	}
}

// End ends the server by a signal to its first process, and kills it if that takes too long.
func (p *Process) End(by syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := p.now.Signal(by); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := p.wait(); err != nil {
		return errors.Join(err, p.Kill())
	}
	return nil
}

// Kill kills all processes of the server, and returns once the first is gone.
func (p *Process) Kill() error {
	if !p.Running() {
		return errors.New("the server had ended before it was killed")
	}
	return errors.Join(p.signal(syscall.SIGKILL), p.wait())
}

// Pause stops all processes of the server as if its machine hung: until Resume, connections
// stay open and get no answers.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume continues a paused server.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// signal sends a signal to all processes of the server. Some may have ended.
func (p *Process) signal(sig syscall.Signal) error {
	pid := p.now.PID()
	send := func(to int, sig syscall.Signal) error {
		if err := syscall.Kill(to, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return nil
	}
	// Stop the first one, so that it starts no more while the list is read.
	errs := []error{send(pid, syscall.SIGSTOP)}
	for _, child := range append(children(pid), pid) {
		errs = append(errs, send(child, sig))
	}
	return errors.Join(errs...)
}

func (p *Process) wait() error {
	select {
	case <-p.now.Exited():
		return nil
	case <-time.After(patience):
		return fmt.Errorf("the server did not end within %v:\n%s", patience, p.Log())
	}
}

// Server is a [Process] that belongs to a test: its methods fail the test if they can't do
// their work.
type Server struct {
	Process
	TB testing.TB
	// Graceful is the signal on which the server ends in an orderly way.
	Graceful syscall.Signal
}

// Stop shuts the server down as an operator does: it ends the sessions and writes everything
// in memory to disk.
func (s *Server) Stop() { s.TB.Helper(); Check(s.TB, s.End(s.Graceful)) }

// Kill is [Process.Kill].
func (s *Server) Kill() { s.TB.Helper(); Check(s.TB, s.Process.Kill()) }

// Pause is [Process.Pause].
func (s *Server) Pause() { s.TB.Helper(); Check(s.TB, s.Process.Pause()) }

// Resume is [Process.Resume].
func (s *Server) Resume() { s.TB.Helper(); Check(s.TB, s.Process.Resume()) }

// Restart is [Process.Start], also of a server that runs.
func (s *Server) Restart() { s.TB.Helper(); Check(s.TB, errors.Join(s.End(s.Graceful), s.Start())) }

// Check fails a test if there is an error.
func Check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Eventually calls f until it returns nil, and fails the test if it never does.
func Eventually(tb testing.TB, what string, f func() error) {
	tb.Helper()
	end := time.After(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-end:
			tb.Fatalf("it did not come true that %s: %v", what, err)
		}
	}
}

// Find returns the path of a program of a server. Debian keeps some out of PATH, or out of
// that of users. The error wraps [exec.ErrNotFound].
func Find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/lib/postgresql/*/bin", "/usr/sbin"} {
		if found, err := filepath.Glob(filepath.Join(dir, name)); err == nil && len(found) > 0 {
			slices.Sort(found)
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("no program %s: %w", name, exec.ErrNotFound)
}

// RequireEnv names an environment variable. If it is 1, a test fails instead of being skipped
// when a server isn't installed.
const RequireEnv = "SEMEL_REQUIRE_SERVICES"

// Need skips the test if a program isn't installed, and says which package has it.
func Need(tb testing.TB, program, pkg string) {
	tb.Helper()
	_, err := Find(program)
	need(tb, err, program, pkg)
}

// NeedFile is Need for a part of a server that isn't a program.
func NeedFile(tb testing.TB, path, pkg string) {
	tb.Helper()
	_, err := os.Stat(path)
	need(tb, err, path, pkg)
}

func need(tb testing.TB, err error, what, pkg string) {
	tb.Helper()
	switch {
	case err == nil:
	case os.Getenv(RequireEnv) == "1":
		tb.Fatalf("%v: install the package %s", err, pkg)
	default:
		tb.Skipf("needs %s: install the package %s", what, pkg)
	}
}
