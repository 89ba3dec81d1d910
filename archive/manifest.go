package archive

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// The names in the directory.
const (
	manifestFile  = "manifest.ndjson"
	lockFile      = "LOCK"
	tempSuffix    = ".tmp"
	segmentPrefix = "segment-"
	segmentSuffix = ".ndjson.zst"
)

// Version is the newest version of the format. Higher ones are refused. A segment has the
// earliest that can hold its records: 2 adds marks of sequences, and how long refusals stay
// beside a record.
const Version = 2

// versionOf is the version that a record needs.
func versionOf(rec *semel.Record) int {
	if rec.Mark != nil || rec.RefusedUntil != 0 {
		return 2
	}
	return 1
}

// Entry is a line of the manifest.
type Entry struct {
	// Version of the format: 1 or 2.
	Version int `json:"version"`
	// File is the name of the segment.
	File string `json:"file"`
	// Records is the number of records in it.
	Records int `json:"records"`
	// Bytes is its compressed size.
	Bytes int64 `json:"bytes"`
	// FirstEnded and LastEnded are the earliest and latest time at which an
	// attempt in it ended; zero if none did.
	FirstEnded store.Instant `json:"first_ended,omitzero"`
	LastEnded  store.Instant `json:"last_ended,omitzero"`
	// SHA256 is the digest of the file, in hexadecimal.
	SHA256 string `json:"sha256"`
	// LinesSHA256 is that of its content before it was compressed.
	LinesSHA256 string `json:"lines_sha256"`
	// Previous is the SHA-256 of the line before this one, without its end;
	// empty for the first.
	Previous string `json:"previous"`
}

// FileError says which file of an archive is damaged.
type FileError struct {
	// File is its name in the directory.
	File string
	// Err says what the fault is.
	Err error
}

// Error returns the name and the fault.
func (e *FileError) Error() string { return e.File + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *FileError) Unwrap() error { return e.Err }

// count adds a record to the entry's figures.
func (e *Entry) count(rec *semel.Record) {
	e.Records++
	e.Version = max(e.Version, versionOf(rec))
	at := rec.EndedAt
	if at == 0 {
		return
	}
	if e.FirstEnded == 0 || at < e.FirstEnded {
		e.FirstEnded = at
	}
	if e.LastEnded == 0 || at > e.LastEnded {
		e.LastEnded = at
	}
}

// line is the entry as it is in the manifest, without the end of the line.
func (e *Entry) line() ([]byte, error) { return json.Marshal(e) }

func digestOf(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

func segmentName(number int) string {
	return fmt.Sprintf("%s%08d%s", segmentPrefix, number, segmentSuffix)
}

// segmentNumber is the reverse of segmentName.
func segmentNumber(name string) (number int, ok bool) {
	if _, err := fmt.Sscanf(name, segmentPrefix+"%d"+segmentSuffix, &number); err != nil {
		return 0, false
	}
	return number, number > 0 && segmentName(number) == name
}

// isTemp reports whether a file is an unfinished one.
func isTemp(name string) bool {
	base, ok := strings.CutSuffix(name, tempSuffix)
	_, segment := segmentNumber(base)
	return ok && (segment || base == manifestFile)
}

// readManifest calls f with each entry and its line, after it has checked that the entry
// follows the one before. torn says that the manifest ends in part of a line, as
// an interrupted write leaves it: without a line end, or with zeros where a block didn't
// reach the disk. A missing manifest counts as empty.
func (a *Archive) readManifest(f func(entry Entry, line []byte) error) (torn bool, err error) {
	file, err := a.files.Open(a.path(manifestFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	r := bufio.NewReader(file)
	var last position
	for {
		line, err := r.ReadBytes('\n')
		switch {
		case err == io.EOF && len(line) == 0:
			return false, nil
		case err == io.EOF:
			return true, nil
		case err != nil:
			return false, err
		}
		if bytes.IndexByte(line, 0) >= 0 {
			if _, err := r.Peek(1); err == io.EOF {
				return true, nil
			}
		}
		line = line[:len(line)-1]
		entry, err := parseEntry(line, last)
		if err == nil {
			err = f(entry, line)
		}
		if err != nil {
			if _, named := errors.AsType[*FileError](err); named {
				return false, err
			}
			return false, &FileError{manifestFile, fmt.Errorf("line %d: %w", last.number+1, err)}
		}
		last = position{last.number + 1, digestOf(line)}
	}
}

// parseEntry reads the line that follows a position.
func parseEntry(line []byte, last position) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(line, &e); err != nil {
		return e, err
	}
	switch {
	case e.Version < 1 || e.Version > Version:
		return e, fmt.Errorf("its format is version %d, and this program knows up to %d: use the program that wrote it, or a later one", e.Version, Version)
	case e.Previous != last.digest:
		return e, errors.New("it does not follow from the line before: one of them was changed, or one is missing")
	case e.File != segmentName(last.number+1):
		return e, fmt.Errorf("it is about %q and not %s", e.File, segmentName(last.number+1))
	}
	// Every byte counts, even if JSON would ignore the difference.
	if again, err := e.line(); err != nil || !bytes.Equal(again, line) {
		return e, errors.New("it was not written by an archive")
	}
	return e, nil
}

// manifestLines is the manifest up to its last whole line.
func (a *Archive) manifestLines() ([]byte, error) {
	var whole []byte
	_, err := a.readManifest(func(_ Entry, line []byte) error {
		whole = append(append(whole, line...), '\n')
		return nil
	})
	return whole, err
}
