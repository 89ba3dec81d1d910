// Package sse reads and writes stream events (HTML's text/event-stream) in their wire form, for
// doors that pass them on.
package sse

import (
	"bytes"
	"io"
	"iter"
	"net/http"
	"strings"
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

// Split cuts a text into its whole events.
func Split(text string) (events [][]byte) {
	var b Buffer
	b.WriteString(text)
	for event := b.Event(); event != nil; event = b.Event() {
		events = append(events, event)
	}
	return events
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
	for value := range fields(event, "data") {
		if data != nil {
			data = append(data, '\n')
		}
		data = append(data, value...)
	}
	return data
}

// ID is the id that an event gives itself, and is not ok if it gives none: then it has that of the
// event before. A client asks by the newest id that it has seen, in the header Last-Event-ID.
func ID(event []byte) (id string, ok bool) {
	for value := range fields(event, "id") {
		id, ok = string(value), true
	}
	return id, ok
}

// fields are the values of one field of an event.
func fields(event []byte, name string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for line := range bytes.FieldsFuncSeq(event, func(r rune) bool { return r == '\n' || r == '\r' }) {
			field, value, _ := bytes.Cut(line, []byte(":"))
			if string(field) == name && !yield(bytes.TrimPrefix(value, []byte(" "))) {
				return
			}
		}
	}
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

// Is reports whether the values of Content-Type say that a body is a stream.
func Is(types []string) bool {
	if len(types) != 1 {
		return false
	}
	media, _, _ := strings.Cut(types[0], ";")
	return strings.EqualFold(strings.TrimSpace(media), MediaType)
}

// Partial makes a refusal the last event of a stream that isn't whole. Send sends the events
// before it.
type Partial struct {
	http.ResponseWriter
	Send  func()
	Event string // names the last one
}

// WriteHeader sends everything but the refusal, with its status.
func (p *Partial) WriteHeader(status int) {
	header := p.Header()
	delete(header, "Content-Length")
	header.Set("Content-Type", MediaType)
	p.ResponseWriter.WriteHeader(status)
	p.Send()
}

// Write sends the refusal, which is JSON and comes in one piece.
func (p *Partial) Write(refusal []byte) (int, error) {
	if _, err := io.WriteString(p.ResponseWriter, "event: "+p.Event+"\n"); err != nil {
		return 0, err
	}
	_, err := p.ResponseWriter.Write(JSON(refusal))
	return len(refusal), err
}

// Pass passes on the whole events of a stream, as many at a time as there are, beginning after
// the one with the id after. If that is empty or never comes, nothing is skipped: rewind
// goes to the start for it. next returns more of the stream, and io.EOF at its end. Text behind the
// last event comes then, and is left out after any other error, which Pass returns.
func Pass(next func() ([]byte, error), rewind func() error, after string, send func(events [][]byte) error) error {
	var open Buffer
	for {
		text, err := next()
		open.Write(text)
		var events [][]byte
		for event := open.Event(); event != nil; event = open.Event() {
			if after == "" {
				events = append(events, event)
			} else if id, ok := ID(event); ok && id == after {
				after = ""
			}
		}
		switch {
		case err != nil && after != "":
			after, open = "", Buffer{}
			err = rewind()
		case err == io.EOF && open.Len() > 0:
			events = append(events, open.Bytes())
		}
		if len(events) > 0 {
			if err := send(events); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}
