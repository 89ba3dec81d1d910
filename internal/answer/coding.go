package answer

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// CodingHeader says how an answer is encoded, and AcceptHeader which encodings its caller accepts.
const (
	CodingHeader = "Content-Encoding"
	AcceptHeader = "Accept-Encoding"
)

// Unpack returns the recorded body uncompressed, if it was compressed because the first caller
// accepted that and this request doesn't; otherwise nil. It removes a label that doesn't fit
// the body: middleware labels answers that it is about to compress, and doesn't compress an
// empty body.
func Unpack(h http.Header, body []byte, request http.Header) io.Reader {
	encodings := h[CodingHeader]
	if len(encodings) != 1 || !strings.EqualFold(encodings[0], "gzip") {
		return nil
	}
	if bytes.HasPrefix(body, []byte{0x1f, 0x8b}) && acceptsGzip(request) {
		return nil
	}
	delete(h, CodingHeader)
	unpacked, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil
	}
	delete(h, "Etag") // it belongs to another representation
	return unpacked
}

// Narrow makes the handler encode its answer in a way that every later caller can get: as gzip,
// which [Unpack] removes, or not at all. It returns what the caller accepts, or nil if that
// stays as it is.
func Narrow(h http.Header) (accepted []string) {
	accepted, ok := h[AcceptHeader]
	switch {
	case !ok, len(accepted) == 1 && accepted[0] == "gzip":
		return nil
	case acceptsGzip(h):
		h[AcceptHeader] = gzipOnly[:1:1]
	default:
		h[AcceptHeader] = identityOnly[:1:1]
	}
	return accepted
}

var gzipOnly, identityOnly = []string{"gzip"}, []string{"identity"}

// acceptsGzip reads Accept-Encoding (RFC 9110 section 12.5.3). By the letter of it, a request
// without the header accepts anything, but such a client may not support any encoding. An entry
// for gzip counts more than one for everything else.
func acceptsGzip(h http.Header) bool {
	named, others := false, false
	for _, field := range h[AcceptHeader] {
		for item := range strings.SplitSeq(field, ",") {
			coding, params, _ := strings.Cut(item, ";")
			weight, found := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
			q, err := strconv.ParseFloat(weight, 64)
			accepted := !found || err != nil || q > 0
			switch strings.ToLower(strings.TrimSpace(coding)) {
			case "gzip", "x-gzip":
				if !accepted {
					return false
				}
				named = true
			case "*":
				others = accepted
			}
		}
	}
	return named || others
}
