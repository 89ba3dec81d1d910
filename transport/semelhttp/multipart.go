package semelhttp

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
)

// boundaryOf is the boundary that the Content-Type names.
func boundaryOf(header http.Header) (string, bool) {
	_, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	boundary := params["boundary"]
	return boundary, err == nil && boundary != ""
}

// maxParts is how many parts a body may have to be compared by them. One with more is
// compared byte by byte: servers refuse such bodies (net/http takes as many), and
// what a part costs is more than its bytes.
const maxParts = 1000

var errParts = errors.New("the body has too many parts")

// appendParts appends each part of a multipart body: its headers, sorted by name,
// and the digest of its content. Parts are read one after the other, so their
// size does not matter. What comes before the first and after the last part means
// nothing (RFC 2046 section 5.1.1).
func appendParts(b []byte, body io.Reader, boundary string) ([]byte, error) {
	mr := multipart.NewReader(body, boundary)
	content := sha256.New()
	var chunk []byte
	for n := 0; ; n++ {
		part, err := mr.NextRawPart()
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
		if n == maxParts {
			return b, errParts
		}
		b = binary.AppendUvarint(b, uint64(len(part.Header)))
		for _, name := range slices.Sorted(maps.Keys(part.Header)) {
			b = frame(b, name)
			b = binary.AppendUvarint(b, uint64(len(part.Header[name])))
			for _, v := range part.Header[name] {
				b = frame(b, v)
			}
		}
		content.Reset()
		if chunk == nil {
			chunk = make([]byte, 32<<10)
		}
		if _, err := io.CopyBuffer(content, part, chunk); err != nil {
			return b, err
		}
		b = content.Sum(b)
	}
}
