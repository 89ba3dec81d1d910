// Package archive keeps records in files for good, before a store deletes them
// (MAP-EXP.3). Use its Write as semel.Options.Archive.
//
// # Files
//
// Each batch is one segment, segment-00000001.ndjson.zst and so on: one JSON
// record per line, with the members that it has in the API and further ones that only a store
// needs, compressed with Zstandard. The file manifest.ndjson has one line for each segment, an
// [Entry], with its digests and the digest of the line before. So somebody who changes,
// exchanges or removes a segment must change every line after it, and you notice if you keep
// the last line elsewhere. [Verify] checks the archive; any tool for Zstandard and JSON can
// read it.
//
// Text that isn't valid UTF-8, which no record of an engine has, doesn't survive JSON;
// everything else survives unchanged.
package archive

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path/filepath"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/wire"
)

// Archive is a directory that records are written to. One process at a time has it
// open. Its methods may be called concurrently.
type Archive struct {
	files files
	dir   string
	lock  io.Closer

	mu     sync.Mutex
	zstd   *zstd.Encoder
	last   position
	unsure bool // a Write failed, so check the files first
	closed bool
}

// position is the end of the manifest.
type position struct {
	number int    // of the last segment; 0 if there is none
	digest string // of the last line; empty if there is none
}

var errClosed = errors.New("the archive is closed")

// Open opens the archive in a directory, and makes it if there is none. After a
// crash it lists a segment that was finished but not listed, and removes unfinished
// files; neither had been acknowledged. It doesn't check the segments: see [Verify].
func Open(dir string) (*Archive, error) { return open(osFiles{}, dir) }

func open(fs files, dir string) (*Archive, error) {
	a := &Archive{files: fs, dir: dir}
	if err := a.open(); err != nil {
		return nil, fmt.Errorf("open the archive in %s: %w", dir, err)
	}
	return a, nil
}

func (a *Archive) open() (err error) {
	if err := a.files.MkdirAll(a.dir); err != nil {
		return err
	}
	if a.lock, err = a.files.Lock(a.path(lockFile)); err != nil {
		return fmt.Errorf("is it in use by another process? %w", err)
	}
	if err := a.recover(); err != nil {
		return errors.Join(err, a.lock.Close())
	}
	return nil
}

func (a *Archive) path(name string) string { return filepath.Join(a.dir, name) }

// Close unlocks the archive for other processes. Everything is durable already.
func (a *Archive) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	return a.lock.Close()
}

// Write adds a batch of records as one segment. When it returns nil they are
// durable. After an error they may or may not be in the archive; writing them again is
// harmless, because readers tell versions of a record apart by ID and Revision.
func (a *Archive) Write(ctx context.Context, recs []semel.Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return errClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case len(recs) == 0:
		return nil
	}
	if a.unsure {
		if err := a.recover(); err != nil {
			return fmt.Errorf("archive: after an earlier failure: %w", err)
		}
	}
	a.unsure = true
	entry, err := a.writeSegment(recs)
	if err == nil {
		err = a.list(entry)
	}
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	a.unsure = false
	return nil
}

// writeSegment makes the next segment. A crash before the rename leaves a
// temporary file, which the next Open removes. A crash after it leaves a segment
// that is not listed, which the next Open lists.
func (a *Archive) writeSegment(recs []semel.Record) (Entry, error) {
	name := segmentName(a.last.number + 1)
	entry := Entry{File: name, Previous: a.last.digest}
	for i := range recs {
		entry.count(&recs[i])
	}
	err := a.replace(name, func(w io.Writer) error {
		compressed := &digester{w: w, hash: sha256.New()}
		buf := bufio.NewWriterSize(compressed, 64<<10)
		zw, err := a.compressor(buf)
		if err != nil {
			return err
		}
		lines := &digester{w: zw, hash: sha256.New()}
		enc := wire.NewEncoder(lines)
		for i := range recs {
			if err := enc.Encode(wire.KeptOf(&recs[i])); err != nil {
				return errors.Join(err, zw.Close())
			}
		}
		if err := errors.Join(zw.Close(), buf.Flush()); err != nil {
			return err
		}
		entry.Bytes, entry.SHA256, entry.LinesSHA256 = compressed.n, compressed.sum(), lines.sum()
		return nil
	})
	return entry, err
}

// compressor returns the encoder, which is large and so made only once.
func (a *Archive) compressor(w io.Writer) (zw *zstd.Encoder, err error) {
	if a.zstd != nil {
		a.zstd.Reset(w)
		return a.zstd, nil
	}
	a.zstd, err = zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<20))
	return a.zstd, err
}

// replace makes or replaces a file atomically: after a crash it has its old or its new
// content.
func (a *Archive) replace(name string, write func(io.Writer) error) error {
	temp := a.path(name + tempSuffix)
	if err := a.files.Remove(temp); err != nil { // left by a failure
		return err
	}
	f, err := a.files.Create(temp)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, a.files.Remove(temp))
	}
	if err := a.files.Rename(temp, a.path(name)); err != nil {
		return err
	}
	return a.files.SyncDir(a.dir)
}

// list adds a line to the manifest. A crash in between leaves part of a line,
// which the next Open removes; the segment is listed then.
func (a *Archive) list(entry Entry) error {
	line, err := entry.line()
	if err != nil {
		return err
	}
	f, err := a.files.Append(a.path(manifestFile))
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if a.last.number == 0 { // the manifest is new
		if err := a.files.SyncDir(a.dir); err != nil {
			return err
		}
	}
	a.last = position{a.last.number + 1, digestOf(line)}
	return nil
}

// recover brings the directory into the state before or after the newest Write,
// and finds out where the manifest ends.
func (a *Archive) recover() error {
	names, err := a.files.List(a.dir)
	if err != nil {
		return err
	}
	var whole []byte // the manifest without a torn end; nil if that is how it is
	a.last = position{}
	torn, err := a.readManifest(func(_ Entry, line []byte) error {
		a.last = position{a.last.number + 1, digestOf(line)}
		return nil
	})
	if err != nil {
		return err
	}
	var orphans []string
	for _, name := range names {
		if n, ok := segmentNumber(name); ok && n > a.last.number {
			orphans = append(orphans, name)
		}
	}
	if len(orphans) > 1 || len(orphans) == 1 && orphans[0] != segmentName(a.last.number+1) {
		return &FileError{orphans[0], errors.New("no crash leaves so many segments that are not in the manifest: part of it is missing. Put a copy of it in its place")}
	}
	if torn || a.unsure || len(orphans) > 0 {
		if whole, err = a.manifestLines(); err != nil {
			return err
		}
		if len(orphans) > 0 {
			entry, err := a.describe(orphans[0])
			if err != nil {
				return err
			}
			line, err := entry.line()
			if err != nil {
				return err
			}
			whole = append(append(whole, line...), '\n')
			a.last = position{a.last.number + 1, digestOf(line)}
		}
		// The end of the old manifest may be unsynced, and a further sync might not
		// write it, so the manifest is replaced instead of truncated.
		err := a.replace(manifestFile, func(w io.Writer) error {
			_, err := w.Write(whole)
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, name := range names {
		if isTemp(name) {
			if err := a.files.Remove(a.path(name)); err != nil {
				return err
			}
		}
	}
	a.unsure = false
	return a.files.SyncDir(a.dir)
}

// digester passes writes on, and digests and counts their bytes.
type digester struct {
	w    io.Writer
	hash hash.Hash
	n    int64
}

func (d *digester) Write(p []byte) (int, error) {
	n, err := d.w.Write(p)
	d.hash.Write(p[:n])
	d.n += int64(n)
	return n, err
}

func (d *digester) sum() string { return hex.EncodeToString(d.hash.Sum(nil)) }
