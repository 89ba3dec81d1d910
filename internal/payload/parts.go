package payload

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"

	"github.com/semelhq/semel/internal/canon"
)

// appendMultipart is appendParts for a body with this header, which it reads twice. It reports
// false if the body can't be compared by its parts.
func appendMultipart(b []byte, header http.Header, body func() io.Reader) ([]byte, bool) {
	_, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	boundary := params["boundary"]
	if err != nil || boundary == "" || !fewHeaders(body(), boundary) {
		return b, false
	}
	b, err = appendParts(b, body(), boundary)
	return b, err == nil
}

// maxParts is how many parts a body may have to be compared by them. A body with more is
// compared byte for byte: servers refuse such bodies (net/http has the same limit), and a part
// costs more than its bytes.
const maxParts = 1000

// maxHeaders is how many header lines a part may have, likewise. Reading one takes many times
// its bytes.
const maxHeaders = 20

// fewHeaders reports whether each part of a body has few headers. It looks at anything that
// could be a part.
func fewHeaders(body io.Reader, boundary string) bool {
	lines := bufio.NewReaderSize(body, 4<<10)
	delimiter := []byte("--" + boundary)
	headers, within := 0, false
	for begins := true; ; {
		line, err := lines.ReadSlice('\n')
		switch {
		case !begins: // the rest of a long line
		case bytes.HasPrefix(line, delimiter):
			headers, within = 0, true
		case len(bytes.TrimRight(line, "\r\n")) == 0:
			within = false
		case within:
			headers++
		}
		if headers > maxHeaders {
			return false
		}
		if begins = err == nil; err != nil && err != bufio.ErrBufferFull {
			return true
		}
	}
}

var errParts = errors.New("the body has too many parts")

// appendParts appends each part of a multipart body: its headers, sorted by name, and the
// digest of its content. It reads the parts one after the other, so their size doesn't matter.
// It skips text before the first part and after the last one (RFC 2046 section 5.1.1).
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
			b = canon.FrameList(canon.Frame(b, name), part.Header[name])
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
