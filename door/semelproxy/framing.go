package semelproxy

import (
	"bytes"
	"strconv"
	"strings"
	"sync/atomic"
)

// framing parses the bytes that a client sends on one HTTP/1 connection. It finds requests that
// net/http accepts although another hop may see their end elsewhere (request smuggling; RFC
// 9112 sections 5.2, 6.1 and 6.3). It is stricter than net/http, never more lenient: anything
// that it can't parse counts as ambiguous.
//
// The reader of the connection calls feed; fault may be called concurrently.
type framing struct {
	state framingState
	line  []byte // the beginning of an incomplete line
	rest  int64  // how much of a body or chunk, or how many lines of the preface, are still missing
	lines bool   // there was an earlier line

	heads  int64 // complete heads so far
	length int64 // Content-Length of this head; negative: none
	coding bool  // this head has a Transfer-Encoding
	old    bool  // this head is HTTP/1.0

	bad atomic.Pointer[framingFault]
}

// framingFault says which request on a connection is the first refused one, and why.
type framingFault struct {
	request int64 // counted from 1
	why     string
}

type framingState uint8

const (
	atStart    framingState = iota // before or in a request line
	inHead                         // in the header section
	inBody                         // in a body of known length
	atSize                         // in the line with a chunk's size
	inChunk                        // in a chunk
	afterChunk                     // in the line end after a chunk
	inTrailers                     // in the lines after the last chunk
	inPreface                      // in the preface of HTTP/2, after its first line
	opaque                         // parses nothing any more
)

// maxFramingLine bounds one line, in bytes.
const maxFramingLine = 64 << 10

// feed parses bytes that the connection has read.
func (f *framing) feed(p []byte) {
	for len(p) > 0 {
		switch f.state {
		case opaque:
			return
		case inBody, inChunk:
			n := min(f.rest, int64(len(p)))
			p = p[n:]
			f.rest -= n
			switch {
			case f.rest > 0:
			case f.state == inChunk:
				f.state = afterChunk
			default:
				f.state = atStart
			}
		default:
			end := bytes.IndexByte(p, '\n')
			size := end
			if end < 0 {
				size = len(p)
			}
			if len(f.line)+size > maxFramingLine {
				f.fail("a line is too long")
				return
			}
			if end < 0 {
				f.line = append(f.line, p...)
				return
			}
			line := p[:end]
			if len(f.line) > 0 {
				f.line = append(f.line, line...)
				line = f.line
			}
			p = p[end+1:]
			f.take(line)
			f.line = f.line[:0]
		}
	}
}

// fail refuses the request that is being read, or the next one after a body; it is the last on
// this connection.
func (f *framing) fail(why string) {
	f.bad.CompareAndSwap(nil, &framingFault{request: f.heads + 1, why: why})
	f.state, f.line = opaque, nil
}

// take parses one line, without its line feed.
func (f *framing) take(line []byte) {
	text, ok := bytes.CutSuffix(line, []byte{'\r'})
	if !ok || bytes.IndexByte(text, '\r') >= 0 {
		f.fail("a line does not end in carriage return and line feed")
		return
	}
	first := !f.lines
	f.lines = true
	switch f.state {
	case atStart:
		f.requestLine(text, first)
	case inPreface:
		f.prefaceLine(text)
	case inHead:
		f.headLine(text)
	case atSize:
		f.sizeLine(text)
	case afterChunk:
		f.state = atSize
		if len(text) > 0 {
			f.fail("a chunk is longer than its size")
		}
	case inTrailers:
		if len(text) == 0 {
			f.state = atStart
		}
	}
}

func (f *framing) requestLine(text []byte, first bool) {
	switch {
	case len(text) == 0:
		// net/http refuses it.
	case first && string(text) == preface[0]:
		f.state, f.rest = inPreface, int64(len(preface)-1)
	case bytes.HasPrefix(text, []byte("PRI ")):
		f.fail("its method is that of the preface of HTTP/2")
	default:
		f.state, f.length, f.coding = inHead, -1, false
		f.old = !bytes.HasSuffix(text, []byte(" HTTP/1.1"))
	}
}

// preface has the lines that begin an HTTP/2 connection (RFC 9113 section 3.4).
var preface = [...]string{"PRI * HTTP/2.0", "", "SM", ""}

// prefaceLine takes a line after the first one of the preface. net/http takes anything but the
// rest of the preface for an HTTP/1 request with its body, and others may follow on the same
// connection.
func (f *framing) prefaceLine(text []byte) {
	if string(text) != preface[len(preface)-int(f.rest)] {
		f.fail("it begins like HTTP/2 and goes on otherwise")
		return
	}
	if f.rest--; f.rest == 0 {
		f.state = opaque // HTTP/2 has its own framing
	}
}

func (f *framing) headLine(text []byte) {
	if len(text) == 0 {
		f.endHead()
		return
	}
	if text[0] == ' ' || text[0] == '\t' {
		f.fail("a header is folded over two lines")
		return
	}
	name, value, _ := bytes.Cut(text, []byte{':'})
	name, value = bytes.TrimRight(name, " \t"), bytes.Trim(value, " \t")
	switch {
	case bytes.EqualFold(name, []byte("Content-Length")):
		n, err := strconv.ParseUint(string(value), 10, 63)
		switch {
		case f.length >= 0:
			f.fail("Content-Length was sent more than once")
		case err != nil || value[0] == '+':
			f.fail("Content-Length is not a number")
		default:
			f.length = int64(n)
		}
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		if f.coding || !bytes.EqualFold(value, []byte("chunked")) {
			f.fail("Transfer-Encoding is not chunked alone")
		}
		f.coding = true
	}
}

// endHead decides how the body is framed.
func (f *framing) endHead() {
	switch {
	case f.coding && f.length >= 0:
		f.fail("Content-Length and Transfer-Encoding were sent together")
		return
	case f.coding && f.old:
		f.fail("Transfer-Encoding was sent with HTTP/1.0")
		return
	}
	f.heads++
	switch {
	case f.coding:
		f.state = atSize
	case f.length > 0:
		f.state, f.rest = inBody, f.length
	default:
		f.state = atStart
	}
}

func (f *framing) sizeLine(text []byte) {
	size, _, _ := strings.Cut(string(text), ";")
	size = strings.TrimRight(size, " \t")
	n, err := strconv.ParseUint(size, 16, 63)
	switch {
	case err != nil || size[0] == '+':
		f.fail("the size of a chunk before it is not a number")
	case n == 0:
		f.state = inTrailers
	default:
		f.state, f.rest = inChunk, int64(n)
	}
}
