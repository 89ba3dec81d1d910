package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/internal/pgserver"
)

// server is a private PostgreSQL server in a temporary directory, which stop removes.
type server struct {
	dir   string
	cmd   *exec.Cmd
	ended <-chan struct{}
}

// serverTimeout bounds how long it may take to start or to stop.
const serverTimeout = 30 * time.Second

// startServer starts a server that listens only on a socket.
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
	if err := pgserver.Own(s.dir); err != nil {
		return err
	}
	data := filepath.Join(s.dir, "data")
	if _, err := pgserver.Find("initdb"); err != nil {
		return fmt.Errorf("install the package postgresql, or name a database with --database: %w", err)
	}
	initdb, err := pgserver.Command("initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
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
	cmd, err := pgserver.Command("postgres", "-D", data, "-k", s.dir, "-c", "listen_addresses=")
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	ended, err := pgserver.Start(cmd)
	if err != nil {
		return err
	}
	s.cmd, s.ended = cmd, ended
	return s.ready(ctx)
}

// ready waits until the server accepts connections.
func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
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
		timer := time.NewTimer(serverTimeout)
		defer timer.Stop()
		select {
		case <-s.ended:
		case <-timer.C:
			return errors.New("the private PostgreSQL did not end")
		}
	}
	return os.RemoveAll(s.dir)
}
