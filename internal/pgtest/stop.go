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
)

// Stop shuts the server down as an operator does: it ends the sessions and writes everything
// in memory to disk.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	if err := s.stop(); err != nil {
		tb.Fatal(err)
	}
}

func (s *Server) stop() error { return s.end(syscall.SIGINT) }

// end shuts the server down by a signal.
func (s *Server) end(by syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	if err := s.process.Signal(by); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := s.wait(); err != nil {
		return errors.Join(err, s.kill())
	}
	s.process = nil
	return nil
}

// Kill kills the server and all of its processes at once.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	if err := s.kill(); err != nil {
		tb.Fatal(err)
	}
}

func (s *Server) kill() error {
	if s.process == nil {
		return nil
	}
	err := errors.Join(s.signal(syscall.SIGKILL), s.wait())
	s.process = nil
	return err
}

// Pause stops all processes of the server as if its machine hung: until Resume, connections
// stay open and get no answers.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	if err := s.signal(syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
}

// Resume continues a paused server.
func (s *Server) Resume(tb testing.TB) {
	tb.Helper()
	if err := s.signal(syscall.SIGCONT); err != nil {
		tb.Fatal(err)
	}
}

// signal sends a signal to all processes of the server, some of which may have ended.
func (s *Server) signal(sig syscall.Signal) error {
	pid := s.process.PID()
	send := func(to int, sig syscall.Signal) error {
		if err := syscall.Kill(to, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return nil
	}
	// Stop the first one, so that it starts no more while the list is read.
	errs := []error{send(pid, syscall.SIGSTOP)}
	for _, p := range append(children(pid), pid) {
		errs = append(errs, send(p, sig))
	}
	return errors.Join(errs...)
}

func (s *Server) wait() error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.process.Exited():
		return nil
	case <-timer.C:
		return fmt.Errorf("the server did not end within %v:\n%s", patience, s.Log())
	}
}

// Restart starts a stopped or killed server over the same data.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if s.process != nil {
		s.Stop(tb)
	}
	if err := s.start(); err != nil {
		tb.Fatal(err)
	}
}

// remove ends the server and removes its directory, without writing what is in memory: that
// takes half a minute with many databases.
func (s *Server) remove() error {
	return errors.Join(s.end(syscall.SIGQUIT), os.RemoveAll(s.dir))
}

// Standby starts a standby that replicates the server under a name, and stops it at the end of
// the test.
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
	if err := errors.Join(os.WriteFile(signal, nil, 0o600), own(signal)); err != nil {
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

// Await waits until a query returns true.
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
