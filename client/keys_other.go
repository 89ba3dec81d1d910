//go:build !windows && (!unix || solaris || aix)

package client

import (
	"errors"
	"io"
)

// lockFile always fails: this system can't keep a second process away, so there is no
// journal.
func lockFile(string) (io.Closer, error) {
	return nil, errors.New("client: journals of keys are not supported on this system")
}
