package webhook

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
)

// Captured is a saved request: its first line, its header, an empty line, and the body.
type Captured struct {
	Method, Target string
	Delivery
}

// ParseCapture reads a captured request. Lines of the header may end with or without a carriage
// return; the body is everything after the empty line, byte for byte. It is an error if the
// body's length differs from Content-Length, since the signature can't be right then.
func ParseCapture(data []byte) (*Captured, error) {
	end, gap := bytes.Index(data, []byte("\n\n")), 2
	if crlf := bytes.Index(data, []byte("\r\n\r\n")); crlf >= 0 && (end < 0 || crlf < end) {
		end, gap = crlf, 4
	}
	if end < 0 {
		return nil, errors.New("there is no empty line between the header and the body")
	}
	r := textproto.NewReader(bufio.NewReader(bytes.NewReader(append(data[:end:end], "\r\n\r\n"...))))
	first, err := r.ReadLine()
	if err != nil {
		return nil, err
	}
	method, rest, ok := strings.Cut(first, " ")
	target, proto, versioned := strings.Cut(rest, " ")
	if !ok || target == "" || strings.Contains(method, ":") || versioned && !strings.HasPrefix(proto, "HTTP/") {
		return nil, fmt.Errorf("the first line %q is not that of a request, such as POST /hooks/shopify HTTP/1.1", first)
	}
	header, err := r.ReadMIMEHeader()
	if err != nil {
		return nil, fmt.Errorf("the header can't be read: %w", err)
	}
	_, query, _ := strings.Cut(target, "?")
	c := &Captured{method, target, Delivery{Header: http.Header(header), Body: data[end+gap:], Query: query}}
	if length := header.Get("Content-Length"); length != "" && length != fmt.Sprint(len(c.Body)) {
		return nil, fmt.Errorf("Content-Length is %s, and the body has %d bytes: save it without changing a byte", length, len(c.Body))
	}
	return c, nil
}
