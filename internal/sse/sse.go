// Package sse reads and writes the events of streams (text/event-stream of HTML) as they
// stand on the wire, for doors that pass them on.
package sse

import (
	"bytes"
	"net/http"
)

// MediaType is that of a stream.
const MediaType = "text/event-stream"

// Buffer takes a stream as it comes, and cuts it into events. Its zero value is empty.
type Buffer struct {
	bytes.Buffer
	seen int // how much of the text needn't be looked at again
}

// Event takes the next whole event out of the buffer, with the empty line that ends it; nil
// if none is whole yet. However little comes at a time, each byte is looked at once.
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
			return nil // an LF may follow that belongs to this end of a line
		}
		b.seen = next
		if n := lineEnd(text[next:]); n > 0 {
			b.seen = 0
			return bytes.Clone(b.Next(next + n))
		}
	}
}

// lineEnd is how long the end of a line is that text begins with: LF, CR or CRLF. Zero: it
// doesn't begin with one.
func lineEnd(text []byte) int {
	switch {
	case bytes.HasPrefix(text, []byte("\r\n")):
		return 2
	case text[0] == '\n', text[0] == '\r':
		return 1
	}
	return 0
}

// Data is the data of an event; nil if it has none, such as a comment that keeps the
// connection alive.
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

// JSON is JSON as the data of an event, in one line: outside of strings, line feeds are
// white space, and in strings they are escaped.
func JSON(text []byte) []byte {
	event := append([]byte("data: "), text...)
	for i := len("data: "); i < len(event); i++ {
		if event[i] == '\n' || event[i] == '\r' {
			event[i] = ' '
		}
	}
	return append(event, '\n', '\n')
}

// Write sends an event at once. It returns no error: whoever is gone asks again.
func Write(w http.ResponseWriter, event []byte) {
	_, _ = w.Write(event)
	_ = http.NewResponseController(w).Flush()
}
