package semelhttp

import (
	"crypto/sha256"
	"encoding/binary"
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

// appendParts appends each part of a multipart body: its headers, sorted by name,
// and the digest of its content. Parts are read one after the other, so their
// size does not matter. What comes before the first and after the last part means
// nothing (RFC 2046 section 5.1.1).
func appendParts(b []byte, body io.Reader, boundary string) ([]byte, error) {
	mr := multipart.NewReader(body, boundary)
	content := sha256.New()
	for {
		part, err := mr.NextRawPart()
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
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
		if _, err := io.Copy(content, part); err != nil {
			return b, err
		}
		b = content.Sum(b)
	}
}
