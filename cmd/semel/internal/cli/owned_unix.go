//go:build unix

package cli

import (
	"os"
	"syscall"
)

// onlyOurs reports whether a file or a directory belongs to this user or to root, and nobody
// else can write it.
func onlyOurs(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSymlink != 0 || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	of, ok := info.Sys().(*syscall.Stat_t)
	return ok && (of.Uid == 0 || int(of.Uid) == os.Geteuid())
}
