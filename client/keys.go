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

	"github.com/semelhq/semel/transport/semelhttp"
)

// Keys is a journal of the keys of calls that are under way, in a file. A program
// that dies after it has sent a call, and sends it again when it is back, finds
// the key that it used under the name that it gave the call, such as the number of
// its own order.
//
// The file is text: a line for each key that was made or done with, with a
// checksum. One process has it open at a time. Its methods may be called
// concurrently.
type Keys struct {
	path string
	lock io.Closer

	mu    sync.Mutex
	file  *os.File
	live  map[string]string
	lines int   // in the file, below the first
	err   error // why nothing more can be written; see broken
}

const (
	keysHead    = "semel-keys 1\n"
	keysNew     = ".new" // what is being written instead of the journal
	maxCallName = 4096
	// slackLines is how many lines that say nothing any more are let be.
	slackLines = 1024
)

// ErrKeysLocked says that another process has the journal open, or this one has
// it open twice.
var ErrKeysLocked = errors.New("client: the journal of keys is in use")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// OpenKeys opens the journal at path, and makes it if it is not there. A last line
// that a crash has cut off is dropped: its key was not given to anyone. Damage
// anywhere else is an error, as keys may be lost.
func OpenKeys(path string) (*Keys, error) {
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	k := &Keys{path: path, lock: lock, live: map[string]string{}}
	if err := k.open(); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("client: the journal of keys: %w", err)
	}
	return k, nil
}

func (k *Keys) open() error {
	// What a crash left of rewriting the journal says nothing that it doesn't.
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

// read takes in the lines, and returns how much of text is whole.
func (k *Keys) read(text []byte) (whole int, err error) {
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

// appendLine writes that name has a key, or with an empty one that it is done.
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

// endsWhole reports whether what looks like one damaged line ends with a whole one:
// then it is two lines, and no crash has made them one.
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

// For is the key of the call that the caller knows by name. The first time it is
// made, and is durable before For returns; from then on it is the same, in this
// process and the next, until Done.
func (k *Keys) For(name string) (string, error) {
	if name == "" || len(name) > maxCallName || !utf8.ValidString(name) {
		return "", fmt.Errorf("client: the name of a call has 1 to %d bytes of UTF-8", maxCallName)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if key, ok := k.live[name]; ok {
		return key, nil
	}
	key := semelhttp.NewKey()
	// A crash before this write, or in it, leaves no key, and none was used. A
	// crash after it leaves a key that the next process uses.
	if err := k.append(name, key); err != nil {
		return "", err
	}
	k.live[name] = key
	return key, nil
}

// Done forgets the key of a call whose outcome the caller has recorded for itself.
// The next For of that name is another call.
func (k *Keys) Done(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.live[name]; !ok {
		return k.err
	}
	// A crash before this write leaves the key; the caller, who knows the outcome,
	// says Done again.
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

// Names lists the calls that have a key, in no order: those that a program has to
// look after when it is back.
func (k *Keys) Names() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	names := make([]string, 0, len(k.live))
	for name := range k.live {
		names = append(names, name)
	}
	return names
}

// append makes one line durable.
func (k *Keys) append(name, key string) error {
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

// broken stops writing: what the file has is not known any more, and a line after
// one that is cut off would be damage. Keys that exist go on being given.
func (k *Keys) broken(err error) error {
	k.err = fmt.Errorf("client: the journal of keys can't be written and has to be opened again: %w", err)
	return k.err
}

// rewrite writes a journal with what is live only, and puts it in the place of the
// old one. A crash before the rename leaves the old journal, and a file that the
// next opening removes. A crash after it leaves the new one.
func (k *Keys) rewrite() error {
	temp, err := os.OpenFile(k.path+keysNew, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(temp)
	_, _ = w.WriteString(keysHead) // Flush tells
	for name, key := range k.live {
		_, _ = w.Write(appendLine(nil, name, key))
	}
	if err := errors.Join(w.Flush(), temp.Sync(), temp.Close()); err != nil {
		return err
	}
	if k.file != nil {
		if err := k.file.Close(); err != nil { // some systems do not replace an open file
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

// syncDir makes a rename durable where a directory can be synced.
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
func (k *Keys) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.file == nil {
		return nil
	}
	err := k.file.Close()
	k.file, k.err = nil, errors.New("client: the journal of keys is closed")
	return errors.Join(err, k.lock.Close())
}
