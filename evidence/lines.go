package evidence

import (
	"bytes"
	"io"
	"runtime"
	"sync"
)

// line is a line of an export. Entries are taken apart and hashed already.
type line struct {
	data    []byte
	isEntry bool
	entry   entryLine
}

// block is a number of whole lines.
type block struct {
	data  []byte
	lines []line
	ready chan struct{}
}

const (
	// blockSize is how many bytes of an export one processor takes apart at a time; see
	// BenchmarkBlocks.
	blockSize = 1 << 18
	// maxLine bounds a line, and with it the memory of a verification.
	maxLine = 16 << 20
)

// eachLine calls f with each line of an export in turn, until it returns false. The
// hashing is done ahead, by all processors, in blocks of about so many bytes.
func eachLine(r io.Reader, size int, f func(*line) bool) error {
	workers := runtime.GOMAXPROCS(0)
	todo, inOrder := make(chan *block), make(chan *block, 2*workers)
	stop := make(chan struct{})
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for b := range todo {
				b.takeApart()
				close(b.ready)
			}
		})
	}
	var readErr error
	work.Go(func() {
		defer close(inOrder)
		defer close(todo)
		readErr = readBlocks(r, size, func(data []byte) bool {
			b := &block{data: data, ready: make(chan struct{})}
			select {
			case inOrder <- b:
			case <-stop:
				return false
			}
			select {
			case todo <- b:
			case <-stop:
				close(b.ready)
				return false
			}
			return true
		})
	})
	stopped := false
	for b := range inOrder {
		<-b.ready
		for i := range b.lines {
			if stopped = stopped || !f(&b.lines[i]); stopped {
				break
			}
		}
		if stopped {
			close(stop)
			break
		}
	}
	work.Wait()
	if stopped {
		return nil
	}
	return readErr
}

// readBlocks yields blocks of whole lines of about so many bytes. A line without an end is
// one too.
func readBlocks(r io.Reader, size int, yield func([]byte) bool) error {
	var rest []byte
	for {
		buf := make([]byte, len(rest)+size)
		n := copy(buf, rest)
		m, err := io.ReadFull(r, buf[n:])
		buf = buf[:n+m]
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			if len(buf) > 0 {
				yield(buf)
			}
			return nil
		}
		if err != nil {
			return err
		}
		end := bytes.LastIndexByte(buf, '\n') + 1
		rest = buf[end:]
		if len(rest) > maxLine {
			return io.ErrShortBuffer
		}
		if end > 0 && !yield(buf[:end]) {
			return nil
		}
	}
}

// takeApart takes the lines of the block apart.
func (b *block) takeApart() {
	b.lines = make([]line, 0, len(b.data)/512+1)
	for rest := b.data; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		one := line{data: rest}
		if end >= 0 {
			one.data, rest = rest[:end], rest[end+1:]
		} else {
			rest = nil
		}
		if one.isEntry = bytes.HasPrefix(one.data, entryPrefix); one.isEntry {
			var err error
			if one.entry, err = parseEntry(one.data); err != nil {
				one.entry.kind, one.entry.fault = KindFormat, err.Error()
			} else {
				one.entry.check()
			}
		}
		b.lines = append(b.lines, one)
	}
}
