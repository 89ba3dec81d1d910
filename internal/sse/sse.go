// Package sse reads and writes the events of streams (text/event-stream of HTML) as they
// stand on the wire, for doors that pass them on.
package sse

import (
	"bytes"
	"net/http"
)

// MediaType is that of a stream.
const MediaType = "text/event-stream"

// Cut splits text behind its first whole event and the empty line that ends it. It reports
// false if no event is whole yet. Lines end with LF or CRLF.
func Cut(text []byte) (event, rest []byte, whole bool) {
	for from := 0; ; {
		i := bytes.IndexByte(text[from:], '\n')
		if i < 0 {
			return nil, text, false
		}
		from += i + 1
		for _, end := range []string{"\n", "\r\n"} {
			if bytes.HasPrefix(text[from:], []byte(end)) {
				from += len(end)
				return text[:from], text[from:], true
			}
		}
	}
}

// Data is the data of an event; nil if it has none, such as a comment that keeps the
// connection alive.
func Data(event []byte) []byte {
	var data []byte
	for line := range bytes.Lines(event) {
		value, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("data:"))
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
