// Package sse reads and writes stream events (HTML's text/event-stream) in their wire form, for
// doors that pass them on.
package sse

import (
	"bytes"
	"net/http"
)

// MediaType is the media type of a stream.
const MediaType = "text/event-stream"

// Buffer collects a stream as it arrives, and cuts it into events. Its zero value is empty.
type Buffer struct {
	bytes.Buffer
	seen int // how much of the text was already searched
}

// Event removes the next complete event from the buffer, with the empty line that ends it; nil
// if none is complete. It looks at each byte once, however little comes at a time.
func (b *Buffer) Event() []byte {
	text := b.Bytes()
	for {
		i := bytes.IndexAny(text[b.seen:], "\r\n")
		if i < 0 {
			b.seen = len(text)
			return nil
		}
		b.seen += i
		next := b.seen + lineEnd(text[b.seen:])
		if next == len(text) {
			return nil // a CR may still be followed by an LF
		}
		b.seen = next
		if n := lineEnd(text[next:]); n > 0 {
			b.seen = 0
			return bytes.Clone(b.Next(next + n))
		}
	}
}

// lineEnd returns the length of the line end at the beginning of text: LF, CR or CRLF. Zero:
// there is none.
func lineEnd(text []byte) int {
	switch {
	case bytes.HasPrefix(text, []byte("\r\n")):
		return 2
	case text[0] == '\n', text[0] == '\r':
		return 1
	}
	return 0
}

// Data returns an event's data; nil if it has none, such as a comment that keeps the connection
// alive.
func Data(event []byte) []byte {
	var data []byte
	for line := range bytes.FieldsFuncSeq(event, func(r rune) bool { return r == '\n' || r == '\r' }) {
		value, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		if data != nil {
			data = append(data, '\n')
		}
		data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
	}
	return data
}

// Fields returns the lines of an event without its data and the empty line that ends it.
func Fields(event []byte) (fields []byte) {
	for line := range bytes.FieldsFuncSeq(event, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if !bytes.HasPrefix(line, []byte("data:")) {
			fields = append(append(fields, line...), '\n')
		}
	}
	return fields
}

// JSON returns JSON as an event's data, in one line: outside strings, line feeds are white
// space, and inside strings they are escaped.
func JSON(text []byte) []byte {
	event := append([]byte("data: "), text...)
	for i := len("data: "); i < len(event); i++ {
		if event[i] == '\n' || event[i] == '\r' {
			event[i] = ' '
		}
	}
	return append(event, '\n', '\n')
}

// Write sends an event at once. It returns no error: a client that is gone asks again.
func Write(w http.ResponseWriter, event []byte) {
	_, _ = w.Write(event)
	_ = http.NewResponseController(w).Flush()
}
