// Package pasted reads a request that somebody has copied in its wire form. It reads no file
// and sends nothing.
package pasted

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// MaxText bounds the text, in bytes.
const MaxText = 256 << 10

// Parse reads a request. It returns the body separately, and the URL has no host: that is in
// [http.Request].Host. Header lines may end without a carriage return, and Content-Length may
// be wrong, for example after an edit. The error is for the person who pasted it.
func Parse(text string) (*http.Request, []byte, error) {
	if len(text) > MaxText {
		return nil, nil, fmt.Errorf("the request is longer than %d KiB", MaxText>>10)
	}
	text = strings.TrimLeft(text, " \t\r\n")
	head, body, _ := strings.Cut(text, "\n\n")
	if crlf := strings.Index(text, "\r\n\r\n"); crlf >= 0 && crlf < len(head) {
		head, body = text[:crlf], text[crlf+4:]
	}
	lines := textproto.NewReader(bufio.NewReader(strings.NewReader(strings.TrimRight(head, "\r\n") + "\r\n\r\n")))
	first, err := lines.ReadLine()
	if err != nil || first == "" {
		return nil, nil, errors.New("there is no request")
	}
	fields := strings.Fields(first)
	if len(fields) < 2 || len(fields) > 3 || len(fields) == 3 && !strings.HasPrefix(fields[2], "HTTP/") {
		return nil, nil, fmt.Errorf("the first line %.60q is not that of a request, such as POST /charges HTTP/1.1; curl -v shows the lines of its request behind >", first)
	}
	header, err := lines.ReadMIMEHeader()
	if err != nil {
		return nil, nil, errors.New("the header can't be read: each line is a name, a colon and a value, and an empty line ends it")
	}
	return request(fields[0], fields[1], http.Header(header), []byte(body))
}

// request assembles a request from its parts.
func request(method, target string, header http.Header, body []byte) (*http.Request, []byte, error) {
	if !isToken(method) || method != strings.ToUpper(method) { // "curl http://…" isn't a request
		return nil, nil, fmt.Errorf("%.40q isn't a method", method)
	}
	u, err := url.ParseRequestURI(target)
	if err != nil || u.Opaque != "" || u.Path == "" && u.Host == "" {
		return nil, nil, fmt.Errorf("%.120q isn't the address of a request", target)
	}
	r := &http.Request{Method: method, Header: header, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	if host := header.Get("Host"); host != "" {
		r.Host = host
	}
	header.Del("Host") // as in requests at a server
	header.Del("Content-Length")
	u.Scheme, u.Host, u.User, u.Fragment = "", "", nil, ""
	if u.Path == "" {
		u.Path = "/"
	}
	r.URL, r.RequestURI, r.ContentLength = u, u.RequestURI(), int64(len(body))
	r.Body = http.NoBody
	if len(body) > 0 {
		r.Body = reader{bytes.NewReader(body)}
	}
	return r, body, nil
}

// reader is a body that doesn't need closing.
type reader struct{ *bytes.Reader }

// Close does nothing.
func (reader) Close() error { return nil }

// isToken reports whether the text is a token by RFC 9110 section 5.6.2.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}
