package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// server is a private PostgreSQL server, in a directory that goes with it.
type server struct {
	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
}

// patience bounds how long it may take to start or to stop.
const patience = 30 * time.Second

// startServer starts a server that is reached by a socket only.
func startServer(ctx context.Context) (*server, error) {
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start a private PostgreSQL: %w", err), s.stop())
	}
	return s, nil
}

func (s *server) start(ctx context.Context) error {
	if err := own(s.dir); err != nil {
		return err
	}
	data := filepath.Join(s.dir, "data")
	initdb, err := command("initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
	if err != nil {
		return err
	}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, err := command("postgres", "-D", data, "-k", s.dir, "-c", "listen_addresses=")
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The system ends the server with the thread that started it, so that
		// thread has to live as long as the server.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // that it has ended is all that matters
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		return err
	}
	s.cmd, s.ended = cmd, ended
	return s.ready(ctx)
}

// ready waits until the server accepts connections.
func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.url())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.ended:
			log, _ := os.ReadFile(filepath.Join(s.dir, "log")) // only for the message
			return fmt.Errorf("it ended:\n%s", log)
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func (s *server) url() string {
	return fmt.Sprintf("postgres://postgres@/postgres?host=%s&sslmode=disable", s.dir)
}

// stop ends the server and removes its directory.
func (s *server) stop() error {
	if s.cmd != nil {
		if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-s.ended:
		case <-timer.C:
			return errors.New("the private PostgreSQL did not end")
		}
	}
	return os.RemoveAll(s.dir)
}

// command is a program of the server, run as a user that may run one.
func command(name string, args ...string) (*exec.Cmd, error) {
	path, err := program(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	return cmd, confine(cmd)
}

// program finds a program of the server.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("there is no program %s: install the package postgresql, or name a database with --database: %w", name, exec.ErrNotFound)
	}
	slices.Sort(found)
	return found[len(found)-1], nil
}
