package archive

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/wire"
)

// Verify reads a whole archive and compares it with its manifest. The error is a
// [*FileError] for the first file that is damaged, missing, or not listed. It
// can't notice if the last segments are missing together with their lines. An archive
// without records passes, but a directory that isn't an archive doesn't.
//
// Don't run it while the archive is written to. After a crash [Open] it first.
func Verify(dir string) error { return verify(osFiles{}, dir) }

func verify(fs files, dir string) error {
	a := &Archive{files: fs, dir: dir}
	names, err := a.names()
	if err != nil {
		return fmt.Errorf("verify the archive in %s: %w", dir, err)
	}
	// Check the manifest by itself first, so that a changed line isn't taken for a
	// changed segment, except for the last one.
	number := 0
	torn, err := a.readManifest(func(Entry, []byte) error { number++; return nil })
	if err == nil {
		err = a.verifySegments()
	}
	if err == nil && torn {
		err = errTorn
	}
	if err == nil {
		err = unlisted(names, number)
	}
	if err != nil {
		return fmt.Errorf("verify the archive in %s: %w", dir, err)
	}
	return nil
}

// names lists the files of an archive. Without a manifest it refuses a directory that may have
// been one with records: Open leaves only a lock in an empty archive.
func (a *Archive) names() ([]string, error) {
	names, err := a.files.List(a.dir)
	if err != nil || slices.Contains(names, manifestFile) {
		return names, err
	}
	if err := unlisted(names, 0); err != nil {
		return nil, err
	}
	if !slices.Contains(names, lockFile) {
		return nil, errors.New("it isn't an archive: it has no " + manifestFile)
	}
	return names, nil
}

// unlisted returns the error for the first segment after those that the manifest lists.
func unlisted(names []string, listed int) error {
	slices.Sort(names)
	for _, name := range names {
		if n, ok := segmentNumber(name); ok && n > listed {
			return &FileError{name, errors.New("it is not in the manifest: a write was interrupted, or lines are missing")}
		}
	}
	return nil
}

// verifySegments compares each segment with its line.
func (a *Archive) verifySegments() error {
	_, err := a.readManifest(func(entry Entry, _ []byte) error {
		is, err := a.describe(entry.File)
		if err != nil {
			return err
		}
		is.Previous = entry.Previous
		if is != entry {
			return &FileError{entry.File, errors.New("it is not what the manifest says: " + difference(is, entry))}
		}
		return nil
	})
	return err
}

var errTorn = &FileError{manifestFile, errors.New("its last line is not whole: a write was interrupted, or its end is missing")}

// difference says how two entries differ.
func difference(is, want Entry) string {
	switch {
	case is.Bytes != want.Bytes:
		return fmt.Sprintf("%d bytes instead of %d", is.Bytes, want.Bytes)
	case is.SHA256 != want.SHA256:
		return "another digest"
	case is.LinesSHA256 != want.LinesSHA256:
		return "another digest of its lines"
	case is.Records != want.Records:
		return fmt.Sprintf("%d records instead of %d", is.Records, want.Records)
	}
	return "other times"
}

// Read calls f with every record of an archive, the first written first, and stops
// at its error. It compares a segment with its digest before it passes on any of its
// records. A version of a record may come twice, with the same ID and Revision.
func Read(dir string, f func(semel.Record) error) error { return read(osFiles{}, dir, f) }

func read(fs files, dir string, f func(semel.Record) error) error {
	a := &Archive{files: fs, dir: dir}
	if _, err := a.names(); err != nil {
		return fmt.Errorf("read the archive in %s: %w", dir, err)
	}
	var stopped error
	torn, err := a.readManifest(func(entry Entry, _ []byte) error {
		if err := a.compare(entry); err != nil {
			return err
		}
		_, err := a.segment(entry.File, func(rec *semel.Record) error {
			stopped = f(*rec)
			return stopped
		})
		return err
	})
	if stopped != nil {
		return stopped
	}
	if err == nil && torn {
		err = errTorn
	}
	if err != nil {
		return fmt.Errorf("read the archive in %s: %w", dir, err)
	}
	return nil
}

// compare compares a segment with its digest, without decompressing it.
func (a *Archive) compare(entry Entry) error {
	file, err := a.files.Open(a.path(entry.File))
	if err != nil {
		return &FileError{entry.File, err}
	}
	d := &digester{w: io.Discard, hash: sha256.New()}
	_, err = io.Copy(d, file)
	if err := errors.Join(err, file.Close()); err != nil {
		return &FileError{entry.File, err}
	}
	if d.sum() != entry.SHA256 {
		return &FileError{entry.File, errors.New("it is not what the manifest says: another digest")}
	}
	return nil
}

// describe makes the entry of a segment from its content. Its Previous makes it the next
// entry of the manifest.
func (a *Archive) describe(name string) (Entry, error) {
	entry := Entry{File: name, Previous: a.last.digest}
	sums, err := a.segment(name, func(rec *semel.Record) error {
		entry.count(rec)
		return nil
	})
	entry.Bytes, entry.SHA256, entry.LinesSHA256 = sums.bytes, sums.file, sums.lines
	return entry, err
}

// sums are the digests of a segment.
type sums struct {
	bytes       int64
	file, lines string
}

// segment calls f with each record of a segment.
func (a *Archive) segment(name string, f func(*semel.Record) error) (sums, error) {
	file, err := a.files.Open(a.path(name))
	if err != nil {
		return sums{}, &FileError{name, err}
	}
	compressed := &digester{w: io.Discard, hash: sha256.New()}
	content := io.TeeReader(file, compressed)
	lines := &digester{w: io.Discard, hash: sha256.New()}
	err = eachRecord(content, lines, f)
	if err == nil {
		_, err = io.Copy(io.Discard, content) // the digest includes bytes after the frame
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return sums{}, &FileError{name, err}
	}
	return sums{compressed.n, compressed.sum(), lines.sum()}, nil
}

// maxWindow bounds the memory for decompressing a segment.
const maxWindow = 64 << 20

func eachRecord(content io.Reader, lines *digester, f func(*semel.Record) error) error {
	zr, err := zstd.NewReader(content, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer zr.Close()
	dec := json.NewDecoder(io.TeeReader(zr, lines))
	dec.DisallowUnknownFields()
	for {
		var kept wire.Kept
		switch err := dec.Decode(&kept); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		rec, err := kept.Value()
		if err == nil {
			err = f(rec)
		}
		if err != nil {
			return err
		}
	}
}
