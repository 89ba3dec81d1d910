package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/semelhq/semel/transport/safehttp"
)

// Keys finds the key of a call under way by the name that you give it, such as the number
// of your order. If your program dies after it has sent a call, and sends it again when
// it is back, it uses the same key. [KeyFile] keeps them in a file; you can keep them in
// a table of your own database instead. Both methods may be called concurrently.
type Keys interface {
	// For returns the key of the call that you know by name. The first time it makes the
	// key, by [safehttp.NewKey], and the key is durable before For returns. From then on
	// it stays the same, in this process and the next, until Done.
	For(name string) (string, error)
	// Done forgets the key of a call, once you have recorded its outcome yourself. The
	// next For with that name is another call.
	Done(name string) error
}

// KeyFile is a journal of keys in a file.
//
// The file is text: a line with a checksum for each key that was made or is done with.
// Only one process can have it open. Its methods may be called concurrently.
type KeyFile struct {
	path string
	lock io.Closer

	mu    sync.Mutex
	file  *os.File
	live  map[string]string
	lines int   // in the file, without the first
	err   error // why nothing more can be written; see broken
}

const (
	keysHead    = "semel-keys 1\n"
	keysNew     = ".new" // ends the name of the next journal while it is written
	maxCallName = 4096
	// slackLines is how many obsolete lines may stay in the file.
	slackLines = 1024
)

// ErrKeysLocked says that another process has the journal open, or that this one opens it
// twice.
var ErrKeysLocked = errors.New("client: the journal of keys is in use")

var _ Keys = (*KeyFile)(nil)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// OpenKeyFile opens the journal at path, and makes it if it doesn't exist. It drops a
// last line that a crash has cut off: nobody got that key. Damage anywhere else is an
// error, because keys may be lost.
func OpenKeyFile(path string) (*KeyFile, error) {
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	k := &KeyFile{path: path, lock: lock, live: map[string]string{}}
	if err := k.open(); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("client: the journal of keys: %w", err)
	}
	return k, nil
}

func (k *KeyFile) open() error {
	// A crash while the journal was rewritten leaves this file; the journal still has
	// everything.
	if err := os.Remove(k.path + keysNew); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	text, err := os.ReadFile(k.path)
	if errors.Is(err, os.ErrNotExist) {
		return k.rewrite()
	}
	if err != nil {
		return err
	}
	whole, err := k.read(text)
	if err != nil {
		return err
	}
	if whole < len(text) || k.lines > len(k.live)+slackLines {
		return k.rewrite()
	}
	k.file, err = os.OpenFile(k.path, os.O_WRONLY|os.O_APPEND, 0)
	return err
}

// read parses the lines, and returns how many bytes of text are whole lines.
func (k *KeyFile) read(text []byte) (whole int, err error) {
	rest, ok := bytes.CutPrefix(text, []byte(keysHead))
	if !ok {
		return 0, errors.New("the file is not a journal of keys, or one of a newer version")
	}
	whole = len(keysHead)
	for n := 2; len(rest) > 0; n++ {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		name, key, ok := readLine(line)
		switch {
		case ok && ended:
		case len(after) == 0 && !endsWhole(line):
			return whole, nil // the last write, which a crash has cut off
		default:
			return 0, fmt.Errorf("line %d is damaged", n)
		}
		if key == "" {
			delete(k.live, name)
		} else {
			k.live[name] = key
		}
		k.lines++
		whole += len(line) + 1
		rest = after
	}
	return whole, nil
}

// appendLine appends the line that gives name a key, or, with an empty key, says that it
// is done with.
func appendLine(b []byte, name, key string) []byte {
	start := len(b)
	b = strconv.AppendQuoteToASCII(append(b, strconv.Quote(key)+" "...), name)
	return fmt.Appendf(b, " %08x\n", crc32.Checksum(b[start:], castagnoli))
}

func readLine(line []byte) (name, key string, ok bool) {
	at := bytes.LastIndexByte(line, ' ')
	if at < 0 || string(line[at+1:]) != fmt.Sprintf("%08x", crc32.Checksum(line[:at], castagnoli)) {
		return "", "", false
	}
	quotedKey, quotedName, _ := strings.Cut(string(line[:at]), " ")
	key, kerr := strconv.Unquote(quotedKey)
	name, nerr := strconv.Unquote(quotedName)
	return name, key, kerr == nil && nerr == nil
}

// endsWhole reports whether a damaged last line ends with a whole one. Then it was two
// lines, and no crash can have joined them.
func endsWhole(line []byte) bool {
	for at := 1; at < len(line); at++ {
		if line[at] == '"' {
			if _, _, ok := readLine(line[at:]); ok {
				return true
			}
		}
	}
	return false
}

// For is [Keys.For]. A name has 1 to 4096 bytes of UTF-8.
func (k *KeyFile) For(name string) (string, error) {
	if name == "" || len(name) > maxCallName || !utf8.ValidString(name) {
		return "", fmt.Errorf("client: the name of a call has 1 to %d bytes of UTF-8", maxCallName)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if key, ok := k.live[name]; ok {
		return key, nil
	}
	key := safehttp.NewKey()
	// A crash before or during this write leaves no key, and nobody used one. A crash
	// after it leaves a key that the next process uses.
	if err := k.append(name, key); err != nil {
		return "", err
	}
	k.live[name] = key
	return key, nil
}

// Done is [Keys.Done].
func (k *KeyFile) Done(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.live[name]; !ok {
		return k.err
	}
	// A crash before this write leaves the key. The caller has the outcome and calls Done
	// again.
	if err := k.append(name, ""); err != nil {
		return err
	}
	delete(k.live, name)
	if k.lines > 2*len(k.live)+slackLines {
		if err := k.rewrite(); err != nil {
			return k.broken(err)
		}
	}
	return nil
}

// Names lists the calls that have a key, in no order: those that your program has to
// finish when it is back.
func (k *KeyFile) Names() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	names := make([]string, 0, len(k.live))
	for name := range k.live {
		names = append(names, name)
	}
	return names
}

// append makes one line durable.
func (k *KeyFile) append(name, key string) error {
	if k.err != nil {
		return k.err
	}
	if _, err := k.file.Write(appendLine(nil, name, key)); err != nil {
		return k.broken(err)
	}
	if err := k.file.Sync(); err != nil {
		return k.broken(err)
	}
	k.lines++
	return nil
}

// broken stops all writing: nobody knows what the file has, and a line after a cut-off
// one would be damage. Existing keys are still returned.
func (k *KeyFile) broken(err error) error {
	k.err = fmt.Errorf("client: the journal of keys can't be written; open it again: %w", err)
	return k.err
}

// rewrite replaces the journal by one with only the live keys. A crash before the rename
// leaves the old journal, and a file that the next opening removes. A crash after it
// leaves the new one.
func (k *KeyFile) rewrite() error {
	temp, err := os.OpenFile(k.path+keysNew, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(temp)
	_, _ = w.WriteString(keysHead) // Flush returns the error
	for name, key := range k.live {
		_, _ = w.Write(appendLine(nil, name, key))
	}
	if err := errors.Join(w.Flush(), temp.Sync(), temp.Close()); err != nil {
		return err
	}
	if k.file != nil {
		if err := k.file.Close(); err != nil { // some systems don't replace an open file
			return err
		}
	}
	if err := os.Rename(k.path+keysNew, k.path); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(k.path)); err != nil {
		return err
	}
	k.lines = len(k.live)
	k.file, err = os.OpenFile(k.path, os.O_WRONLY|os.O_APPEND, 0)
	return err
}

// syncDir makes a rename durable, on systems that can sync a directory.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Close lets another process open the journal.
func (k *KeyFile) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.file == nil {
		return nil
	}
	err := k.file.Close()
	k.file, k.err = nil, errors.New("client: the journal of keys is closed")
	return errors.Join(err, k.lock.Close())
}
