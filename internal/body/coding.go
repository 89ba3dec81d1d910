package body

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"strings"
)

// Coding is a body's encoding on the wire (RFC 9110 section 8.4).
type Coding uint8

// The codings. Only Gzip and Deflate can be decoded here.
const (
	Plain   Coding = iota // as it is
	Gzip                  // gzip or x-gzip
	Deflate               // zlib, or the bare stream that some clients send
	Unknown               // another one, or several
)

// CodingOf returns the coding that the header names.
func CodingOf(h http.Header) Coding {
	values := h["Content-Encoding"]
	if len(values) == 0 {
		return Plain
	}
	switch name := strings.TrimSpace(values[0]); {
	case len(values) > 1:
	case name == "", strings.EqualFold(name, "identity"):
		return Plain
	case strings.EqualFold(name, "gzip"), strings.EqualFold(name, "x-gzip"):
		return Gzip
	case strings.EqualFold(name, "deflate"):
		return Deflate
	}
	return Unknown
}

// ErrTail says that something follows a compressed body. Some programs would read it as part of
// the body, others wouldn't.
var ErrTail = errors.New("something follows the compressed body")

// Decode decodes the content of src: one member without a tail, or else reading ends with an
// error. Limit how much you read: a few bytes can decode to a thousand times as many.
func (c Coding) Decode(src io.Reader) (io.Reader, error) {
	d := &decoded{src: bufio.NewReader(src)}
	var err error
	switch c {
	case Plain:
		return src, nil
	case Gzip:
		var z *gzip.Reader
		if z, err = gzip.NewReader(d.src); err == nil {
			z.Multistream(false)
		}
		d.from = z
	case Deflate:
		// No encoder begins a bare stream with bytes that look like zlib's head: they would
		// mean an uncompressed block after padding that isn't zero.
		if head, _ := d.src.Peek(2); len(head) == 2 && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
			d.from, err = zlib.NewReader(d.src)
		} else {
			d.from = flate.NewReader(d.src)
		}
	default:
		err = errors.ErrUnsupported
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// decoded reads one member, and fails if more follows.
type decoded struct {
	src  *bufio.Reader
	from io.Reader
}

func (d *decoded) Read(p []byte) (int, error) {
	n, err := d.from.Read(p)
	if err == io.EOF {
		switch _, more := d.src.ReadByte(); more {
		case io.EOF:
		case nil:
			err = ErrTail
		default:
			err = more
		}
	}
	return n, err
}
