package safehttp

import (
	"io"
	"mime"
	"net/http"
	"strings"
)

// unframed is the body of an answer in JSON that only the end of its connection ends, as servers of
// HTTP/1.0 and some of PHP send it (RFC 9112 section 6.3). A server that dies ends it the same way,
// so one that ends within an object, a list or a text broke off.
type unframed struct {
	io.ReadCloser
	depth           int
	quoted, escaped bool
}

// isUnframed reports whether an answer has such a body.
func isUnframed(resp *http.Response) bool {
	if resp.ProtoMajor != 1 || resp.ContentLength >= 0 || resp.TransferEncoding != nil || resp.Uncompressed || resp.Header.Get("Content-Encoding") != "" {
		return false
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

func (u *unframed) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	for _, c := range p[:n] {
		switch {
		case u.escaped:
			u.escaped = false
		case u.quoted:
			u.quoted, u.escaped = c != '"', c == '\\'
		case c == '"':
			u.quoted = true
		case c == '{', c == '[':
			u.depth++
		case c == '}', c == ']':
			u.depth--
		}
	}
	if err == io.EOF && (u.depth > 0 || u.quoted) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
