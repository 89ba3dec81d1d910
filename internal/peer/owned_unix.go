//go:build unix

package peer

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// OnlyOurs reports whether a file or a directory belongs to this user or to root, and nobody
// else can write it.
func OnlyOurs(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o022 == 0 && ours(info)
}

// ours reports whether a file belongs to this user or to root.
func ours(info fs.FileInfo) bool {
	of, ok := info.Sys().(*syscall.Stat_t)
	return ok && (of.Uid == 0 || int(of.Uid) == os.Geteuid())
}

// readOwn reads a file. It refuses one that others can change or replace, or that they have linked
// to: they would choose what is sent. The file's owner doesn't matter: whoever configured its name
// knows them.
func readOwn(file string) ([]byte, error) {
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil, err
	}
	for _, path := range []string{file, target} {
		dir, err := os.Stat(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		if dir.Mode()&fs.ModeSticky == 0 && dir.Mode().Perm()&0o002 != 0 {
			return nil, fmt.Errorf("everybody can replace %s, because everybody can write its directory: move it, or run chmod o-w %s", path, filepath.Dir(path))
		}
	}
	if info, err := os.Lstat(file); err == nil && info.Mode()&fs.ModeSymlink != 0 && !ours(info) {
		return nil, fmt.Errorf("somebody else has made the link %s: name the file itself", file)
	}
	f, err := os.Open(target)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.Mode().IsRegular() && info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("others can write %s: run chmod go-w %s, and make sure that the token in it is yours", file, file)
	}
	return io.ReadAll(f)
}
