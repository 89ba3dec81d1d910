package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/pgserver"
)

// Stop ends the server as an operator does: sessions are ended, what is in memory
// is written.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	if err := s.stop(); err != nil {
		tb.Fatal(err)
	}
}

func (s *Server) stop() error {
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := s.wait(); err != nil {
		return errors.Join(err, s.kill())
	}
	s.cmd = nil
	return nil
}

// Kill ends the server and all of its processes at once, without a last word.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	if err := s.kill(); err != nil {
		tb.Fatal(err)
	}
}

func (s *Server) kill() error {
	if s.cmd == nil {
		return nil
	}
	// Stopped first, it starts no further process while its list is read.
	pid := s.cmd.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	var errs []error
	for _, p := range append(children(pid), pid) {
		if err := syscall.Kill(p, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, s.wait())
	s.cmd = nil
	return errors.Join(errs...)
}

// Pause stops all processes of the server as if its machine hung: connections stay
// open and nothing is answered, until Resume.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	// Stopped first, it starts no further process while its list is read.
	pid := s.cmd.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
	for _, p := range children(pid) {
		_ = syscall.Kill(p, syscall.SIGSTOP) // it may have ended meanwhile
	}
}

// Resume is the end of Pause.
func (s *Server) Resume(tb testing.TB) {
	tb.Helper()
	pid := s.cmd.Process.Pid
	for _, p := range append(children(pid), pid) {
		_ = syscall.Kill(p, syscall.SIGCONT)
	}
}

func (s *Server) wait() error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.ended:
		return nil
	case <-timer.C:
		return fmt.Errorf("the server did not end within %v:\n%s", patience, s.Log())
	}
}

// Restart starts a stopped or killed server over the same data.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if s.cmd != nil {
		s.Stop(tb)
	}
	if err := s.start(); err != nil {
		tb.Fatal(err)
	}
}

// remove stops the server and removes its directory.
func (s *Server) remove() error {
	return errors.Join(s.stop(), os.RemoveAll(s.dir))
}

// Standby starts a standby that follows the server and is known to it by a name.
// It is stopped when the test has ended.
func (s *Server) Standby(tb testing.TB, name string) *Server {
	tb.Helper()
	dir, err := newDir()
	if err != nil {
		tb.Fatal(err)
	}
	sb := &Server{dir: dir, data: filepath.Join(dir, "data")}
	tb.Cleanup(func() {
		if err := sb.remove(); err != nil {
			tb.Error(err)
		}
	})
	if err := run("pg_basebackup", "-h", s.dir, "-U", "postgres", "-D", sb.data, "-c", "fast", "-X", "stream", "--no-sync"); err != nil {
		tb.Fatal(err)
	}
	signal := filepath.Join(sb.data, "standby.signal")
	if err := errors.Join(os.WriteFile(signal, nil, 0o600), pgserver.Own(signal)); err != nil {
		tb.Fatal(err)
	}
	err = sb.configure(map[string]string{
		"primary_conninfo":          fmt.Sprintf("host=%s user=postgres application_name=%s", s.dir, name),
		"synchronous_standby_names": "", "wal_receiver_status_interval": "1s", "wal_retrieve_retry_interval": "100ms",
	})
	if err != nil {
		tb.Fatal(err)
	}
	if err := sb.start(); err != nil {
		tb.Fatal(err)
	}
	return sb
}

// Promote makes a standby a primary.
func (s *Server) Promote(tb testing.TB) {
	tb.Helper()
	s.Exec(tb, "postgres", "SELECT pg_promote(true, 30)")
}

// Await waits until a query gives true.
func (s *Server) Await(tb testing.TB, query string) {
	tb.Helper()
	conn := s.Conn(tb, "postgres")
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var is *bool
		if err := conn.QueryRow(ctx, query).Scan(&is); err != nil {
			tb.Fatalf("%s: %v", query, err)
		}
		if is != nil && *is {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("after %v still not: %s", patience, query)
		case <-tick.C:
		}
	}
}
