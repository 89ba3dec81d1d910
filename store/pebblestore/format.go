package pebblestore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel/internal/offsetclock"
)

// The files of the directory that don't belong to Pebble.
const (
	formatFile = "FORMAT" // says in one line what the directory is
	sealFile   = "SEAL"   // exists only while the store is closed
	tempSuffix = ".new"   // of a file that isn't complete yet
	lockFile   = "LOCK"   // Pebble's
)

// Format is the version of the layout of keys and files that this program writes.
const Format = 1

const formatName = "semel pebblestore"

// resolve returns the canonical name of a directory: a process that opened it under two names
// would hold the lock twice.
func resolve(fs vfs.FS, dir string) (string, error) {
	if fs != machine {
		return dir, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real, nil
	}
	return dir, nil // it does not exist yet
}

// prepareDirectory creates the directory. If it exists and holds something else, it fails and
// leaves it alone.
func prepareDirectory(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		// A crash leaves an empty directory, or none: the next Open starts over.
		if err := fs.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		return syncDirectory(fs, fs.PathDir(dir))
	}
	if err != nil {
		return err
	}
	if len(names) == 0 || slices.Contains(names, formatFile) {
		return nil
	}
	// Files that a crash of the first Open can leave.
	for _, name := range names {
		if name != lockFile && name != formatFile+tempSuffix {
			return errors.New("the directory is not empty and is no semel store: give it one of its own")
		}
	}
	return nil
}

// lockDirectory keeps other processes, and other Stores of this one, out.
func lockDirectory(fs vfs.FS, dir string) (*pebble.Lock, error) {
	lock, err := pebble.LockDirectory(dir, fs)
	if err == nil {
		return lock, nil
	}
	// Pebble only has a text for it when the holder is this process. Don't open the lock file
	// to find out more: closing it again would release the lock that this process may hold.
	if errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "held by current process") {
		return nil, fmt.Errorf("the directory is in use by another process or another Store of this one: %w", err)
	}
	return nil, fmt.Errorf("lock the directory: %w", err)
}

// establishFormat checks the directory's format, or gives it one.
func establishFormat(fs vfs.FS, dir string) error {
	text, err := readFile(fs, fs.PathJoin(dir, formatFile))
	if errors.Is(err, os.ErrNotExist) {
		// A crash before this is done leaves no FORMAT file, and nothing of Pebble's: the next
		// Open starts over.
		return writeFile(fs, dir, formatFile, fmt.Sprintf("%s %d\n", formatName, Format))
	}
	if err != nil {
		return err
	}
	number, ok := strings.CutPrefix(strings.TrimSuffix(text, "\n"), formatName+" ")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 {
		return fmt.Errorf("the file %s does not say what the directory holds", formatFile)
	}
	if n > Format {
		return fmt.Errorf("the directory has format %d and this program knows formats up to %d: use the program that wrote it, or a later one", n, Format)
	}
	return nil
}

// A seal records how many batches had been written when the store was closed, and a digest of
// the manifests and the files that point to the current one. A directory that doesn't end there
// has lost something, which Pebble alone can't tell from a crash: damage to the end of a log or
// manifest looks like a write that was never finished.
type seal struct {
	batches uint64
	digest  string
}

// sealedFiles lists what the digest of a seal covers.
func sealedFiles(fs vfs.FS, dir string) ([]string, error) {
	names, err := fs.List(dir)
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, "MANIFEST-") && !strings.HasPrefix(name, "marker.")
	}), err
}

// sealDigest returns the digest for the seal of a directory that no Pebble has open for writing.
func sealDigest(fs vfs.FS, dir string) (string, error) {
	names, err := sealedFiles(fs, dir)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, name := range names {
		f, err := fs.Open(fs.PathJoin(dir, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%d %s\n", len(name), name)
		n, err := io.Copy(h, f)
		fmt.Fprintf(h, "\n%d\n", n)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func readSeal(fs vfs.FS, dir string) (l seal, sealed bool, err error) {
	text, err := readFile(fs, fs.PathJoin(dir, sealFile))
	if errors.Is(err, os.ErrNotExist) {
		return l, false, nil
	}
	if err != nil {
		return l, false, err
	}
	line, whole := strings.CutSuffix(text, "\n")
	number, digest, ok := strings.Cut(line, " ")
	if l.batches, err = strconv.ParseUint(number, 10, 64); err != nil || !whole || !ok {
		return l, false, fmt.Errorf("the file %s is damaged", sealFile)
	}
	l.digest = digest
	return l, true, nil
}

func removeSeal(fs vfs.FS, dir string) error {
	if err := fs.Remove(fs.PathJoin(dir, sealFile)); err != nil {
		return err
	}
	return syncDirectory(fs, dir)
}

// writeSeal is called when everything is flushed and Pebble is closed. A crash
// before it is durable leaves the directory unsealed.
func writeSeal(fs vfs.FS, dir string, batches uint64) error {
	names, err := sealedFiles(fs, dir)
	if err != nil {
		return err
	}
	// Pebble may leave the end of a manifest unsynced when nothing depends on
	// it. The seal does.
	for _, name := range names {
		f, err := fs.OpenReadWrite(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	if err := syncDirectory(fs, dir); err != nil {
		return err
	}
	digest, err := sealDigest(fs, dir)
	if err != nil {
		return err
	}
	return writeFile(fs, dir, sealFile, fmt.Sprintf("%d %s\n", batches, digest))
}

// readMeta reads what the last batch says about the store: zero in a new store.
func readMeta(db pebble.Reader) (meta, error) {
	b, err := readKey(db, metaKey)
	if b == nil || err != nil {
		return meta{}, err
	}
	m, ok := parseMeta(b)
	if !ok {
		return meta{}, fmt.Errorf("the key %s has %d bytes, not %d", metaKey, len(b), metaLen)
	}
	return m, nil
}

// readNote reads the clock's note.
func readNote(db pebble.Reader) (offsetclock.Note, error) {
	b, err := readKey(db, clockKey)
	if b == nil || err != nil {
		return offsetclock.Note{}, err
	}
	n, err := offsetclock.ParseNote(string(b))
	if err != nil {
		return n, fmt.Errorf("the key %s: %w", clockKey, err)
	}
	return n, nil
}

// readKey returns a copy of the value of a key, or nil if there is none.
func readKey(db pebble.Reader, key []byte) ([]byte, error) {
	value, closer, err := db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return append([]byte{}, value...), closer.Close()
}

func readFile(fs vfs.FS, name string) (string, error) {
	f, err := fs.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	return string(b), err
}

// writeFile writes a file so that a crash leaves either all of it or nothing.
func writeFile(fs vfs.FS, dir, name, text string) error {
	temp := fs.PathJoin(dir, name+tempSuffix)
	f, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(temp, fs.PathJoin(dir, name)); err != nil {
		return err
	}
	return syncDirectory(fs, dir)
}

func syncDirectory(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
