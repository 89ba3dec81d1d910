package client

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// errSharing is ERROR_SHARING_VIOLATION: somebody else has the file open.
const errSharing syscall.Errno = 32

// lockFile locks by opening the file at path: while it is open, nobody else can open it.
// The lock ends with the process, however that ends.
func lockFile(path string) (io.Closer, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, fmt.Errorf("client: the journal of keys: %w", err)
	}
	const shareNothing = 0
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, shareNothing, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharing) {
		return nil, ErrKeysLocked
	}
	if err != nil {
		return nil, fmt.Errorf("client: the lock of the journal of keys: %w", err)
	}
	return os.NewFile(uintptr(h), path), nil
}
