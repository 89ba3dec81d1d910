// Package replace writes files that are there whole, in their old form or in the new one,
// whatever happens meanwhile.
package replace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// File makes a file with this text durable and gives it a name that another file may have. A
// crash before the rename leaves the old file, and one with a random number after its name,
// which nobody reads and anybody may remove.
func File(name string, text []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
