//go:build !windows && (!unix || solaris || aix)

package client

import (
	"errors"
	"io"
)

// lockFile can't keep a second process away here, so there is no journal.
func lockFile(string) (io.Closer, error) {
	return nil, errors.New("client: journals of keys are not supported on this system")
}
