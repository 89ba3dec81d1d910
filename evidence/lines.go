package evidence

import (
	"bufio"
	"bytes"
	"io"
	"runtime"
	"slices"
	"sync"
)

// line is a line of an export. If it is an entry, that is already read and hashed.
type line struct {
	data    []byte
	isEntry bool
	entry   checkedEntry
}

const (
	// blockSize is how many bytes of an export all processors read and hash together; see
	// BenchmarkBlocks.
	blockSize = 1 << 20
	// maxLine bounds a line, and with it the memory of a verification.
	maxLine = 16 << 20
)

// eachLine calls f with each line of an export in turn, until f returns false. All processors
// read and hash blocks of lines, of about this size in bytes.
func eachLine(r io.Reader, size int, f func(*line) bool) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	in.Split(wholeLines)
	for more := true; more; {
		var block []line
		for n := 0; n < size; {
			if more = in.Scan(); !more {
				break
			}
			n += len(in.Bytes()) + 1
			block = append(block, line{data: bytes.Clone(in.Bytes())})
		}
		var work sync.WaitGroup
		for part := range slices.Chunk(block, len(block)/runtime.GOMAXPROCS(0)+1) {
			work.Go(func() {
				for i := range part {
					part[i].read()
				}
			})
		}
		work.Wait()
		for i := range block {
			if !f(&block[i]) {
				return nil
			}
		}
	}
	return in.Err()
}

// wholeLines splits text into unchanged lines, with a carriage return if they have one.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	switch end := bytes.IndexByte(data, '\n'); {
	case end >= 0:
		return end + 1, data[:end], nil
	case atEOF && len(data) > 0:
		return len(data), data, nil
	}
	return 0, nil, nil
}

func (l *line) read() {
	if l.isEntry = bytes.HasPrefix(l.data, entryPrefix); l.isEntry {
		l.entry = checkEntry(l.data)
	}
}
