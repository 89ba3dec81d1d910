//go:build unix && !solaris && !aix

package client

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// lockFile locks the file at path. The lock ends with the process, however that ends.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("client: the journal of keys: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrKeysLocked
		}
		return nil, fmt.Errorf("client: the lock of the journal of keys: %w", err)
	}
	return f, nil
}
