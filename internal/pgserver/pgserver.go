// Package pgserver runs the programs of a PostgreSQL server that is installed, for
// private servers in tests. They end with the process that started them, and run as a user
// that may run a server, where it is started by one that may not.
package pgserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
)

// Find returns the path of a program of the server. Debian keeps them out of PATH, or of that
// of users.
// The error wraps [exec.ErrNotFound].
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

// Command is a program of the server with nothing to read, ready to be run, or to
// be started by [Start].
func Command(name string, args ...string) (*exec.Cmd, error) {
	path, err := Find(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	return cmd, confine(cmd)
}

// Start starts a command that goes on. The channel is closed when it has ended.
func Start(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	started, done := make(chan error), make(chan struct{})
	go func() {
		// The kernel ends the command when the thread that started it ends, so
		// that thread has to live as long as the command.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended does not matter, that it did does
		}
		close(done)
	}()
	return done, <-started
}
