//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package archive

import (
	"os"
	"syscall"
)

// lock fails at once if another process, or another Archive of this one, has the
// file locked. The end of the process unlocks it.
func lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
