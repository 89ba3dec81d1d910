package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// find returns the path of a program of the server. Debian keeps them out of PATH, or of that
// of users.
// The error wraps [exec.ErrNotFound].
func find(name string) (string, error) {
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

// command is a program of the server with nothing to read, which runs as a user that may run
// a server.
func command(name string, args ...string) (*exec.Cmd, error) {
	path, err := find(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	return cmd, confine(cmd)
}
