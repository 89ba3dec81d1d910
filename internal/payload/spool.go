package payload

import (
	"bytes"
	"errors"
	"hash"
	"io"
	"net/http"
	"os"
	"sync"
)

// spoolLimit is how much of a body stays in memory, in bytes. The rest goes to a temporary
// file.
const spoolLimit = 64 << 10

// Why a body could not be read.
var (
	ErrTooLarge = errors.New("the body is too large")
	ErrSpool    = errors.New("the body could not be kept")
)

// received is the whole body of a request, as received.
type received struct {
	data []byte   // the body, or its first part
	file *os.File // the rest; nil if there is none
	size int64
}

// Spool is the Body that the handler reads.
type Spool struct {
	received

	// mu keeps a reader that outlives the handler, such as a transport, from memory that
	// Discard returns.
	mu     sync.Mutex
	off    int64
	closed bool
}

// fill reads src to its end. It appends up to spoolLimit bytes to buf, which becomes part of
// the body and is returned, and writes the rest to a file in dir. It writes all of it to sum,
// if there is one.
func (s *received) fill(src io.Reader, buf []byte, limit int64, dir string, sum hash.Hash) ([]byte, error) {
	start := len(buf)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		room := buf[len(buf):min(cap(buf), start+spoolLimit+1)]
		n, err := src.Read(room)
		buf = buf[:len(buf)+n]
		s.data, s.size = buf[start:], int64(len(buf)-start)
		if s.size > limit {
			return buf, ErrTooLarge
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return buf, err
		}
		if s.size > spoolLimit {
			if err := s.overflow(src, limit, dir, sum); err != nil {
				return buf, err
			}
			break
		}
	}
	if sum != nil && s.file == nil {
		sum.Write(s.data)
	}
	return buf, nil
}

// overflow reads the rest of a large body to a file, which it removes while it is open,
// so that a crash leaves nothing behind. If the system doesn't allow that, discard
// removes it.
func (s *received) overflow(src io.Reader, limit int64, dir string, sum hash.Hash) error {
	file, err := os.CreateTemp(dir, "semel-body-*")
	if err != nil {
		return errors.Join(ErrSpool, err)
	}
	s.file = file
	_ = os.Remove(file.Name())
	if sum != nil {
		sum.Write(s.data)
	}
	chunk := make([]byte, 32<<10)
	for {
		n, err := src.Read(chunk)
		if s.size += int64(n); s.size > limit {
			return ErrTooLarge
		}
		if n > 0 {
			if _, err := file.Write(chunk[:n]); err != nil {
				return errors.Join(ErrSpool, err)
			}
			if sum != nil {
				sum.Write(chunk[:n])
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// discard frees the body's memory and file.
func (s *received) discard() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name()) // most systems have already removed it
	}
	*s = received{}
}

// reader reads the body from its beginning, independently of the handler.
func (s *received) reader() io.Reader { return &Spool{received: *s} }

// Read is [io.Reader], for the handler.
func (s *Spool) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if s.off == s.size {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	if s.off < int64(len(s.data)) {
		n := copy(p, s.data[s.off:])
		s.off += int64(n)
		return n, nil
	}
	n, err := s.file.ReadAt(p, s.off-int64(len(s.data)))
	s.off += int64(n)
	if n == 0 {
		return 0, errors.Join(ErrSpool, err)
	}
	return n, nil
}

// Close stops the handler from reading any more.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// Rewind lets the handler read the body from its beginning again, for instance to send it over
// another connection if the first took none of it. It doesn't allow two readers at the same
// time.
func (s *Spool) Rewind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = 0
}

// Copy returns a copy of the body if all of it is in memory. Unlike the spool's own memory you
// may keep it after the request, like a transport that is still writing it.
func (s *Spool) Copy() (body []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil || s.closed {
		return nil, false
	}
	return bytes.Clone(s.data), true
}

// Discard frees the body's memory and file.
func (s *Spool) Discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.discard()
}
