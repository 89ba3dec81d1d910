package semelhttp

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/origin"
)

// replay answers with the recorded answer (IDS-IX.1, MAP-FLOW.2). If that can't be given,
// it refuses.
func (h *handler) replay(w http.ResponseWriter, r *http.Request, rec *semel.Record) said {
	stored, err := answer.Parse(rec.Result.Data)
	switch {
	case rec.Result.Tombstone:
		return h.refuseRecord(w, rec, notKept(stored.Status))
	case err != nil && rec.Failure != nil:
		return h.refuseRecord(w, rec, settledAsFailed(rec))
	case err != nil:
		return h.refuseRecord(w, rec, notKept(0))
	}
	header := w.Header()
	coding, vary := header[codingHeader], header[varyHeader] // set around the guard
	delete(header, codingHeader)
	room := stored.Set(header, r.Header.Get(origin.Header), h.route.KeepHeaders, 4)
	room[0], room[1], room[2] = "true", "no-store", "nosniff"
	header[h.route.Profile.Marker] = room[0:1:1]
	header["Cache-Control"] = room[1:2:2]
	header["X-Content-Type-Options"] = room[2:3:3]
	for _, v := range vary {
		if !slices.Contains(header[varyHeader], v) {
			header[varyHeader] = append(header[varyHeader], v)
		}
	}
	if name := h.route.Profile.RetryHeader; name != "" && stored.Status >= 500 {
		header[name] = []string{"false"} // trying again would only get this answer
	}
	unpacked := unpack(header, stored.Body, r)
	if coding != nil && header[codingHeader] == nil {
		header[codingHeader] = coding
	}
	if unpacked == nil && bodyAllowed(stored.Status) {
		room[3] = strconv.Itoa(len(stored.Body))
		header["Content-Length"] = room[3:4:4]
	}
	w.WriteHeader(stored.Status)
	switch {
	case unpacked != nil:
		if _, err := io.Copy(w, unpacked); err != nil {
			panic(http.ErrAbortHandler) // so that the caller notices that the body isn't whole
		}
	case len(stored.Body) > 0:
		_, _ = w.Write(stored.Body) // a caller who is gone will ask again
	}
	return said{status: stored.Status}
}

const (
	codingHeader = "Content-Encoding"
	acceptHeader = "Accept-Encoding"
	varyHeader   = "Vary"
)

// unpack returns the recorded body uncompressed, if it was compressed because the first
// caller accepted that and this one doesn't; otherwise nil. It removes a label that doesn't
// fit the body: middleware labels the answers that it is going to compress itself, and an
// empty body isn't compressed.
func unpack(h http.Header, body []byte, r *http.Request) io.Reader {
	encodings := h[codingHeader]
	if len(encodings) != 1 || !strings.EqualFold(encodings[0], "gzip") {
		return nil
	}
	if bytes.HasPrefix(body, []byte{0x1f, 0x8b}) && acceptsGzip(r.Header) {
		return nil
	}
	delete(h, codingHeader)
	unpacked, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil
	}
	delete(h, "Etag") // that of another representation
	return unpacked
}

// narrowCodings has the handler code its answer in a way that each later caller can get: as
// gzip, which unpack takes off, or not at all. It returns what the caller accepts, or nil if
// that stays as it is.
func narrowCodings(h http.Header) (accepted []string) {
	accepted, ok := h[acceptHeader]
	switch {
	case !ok, len(accepted) == 1 && accepted[0] == "gzip":
		return nil
	case acceptsGzip(h):
		h[acceptHeader] = gzipOnly[:1:1]
	default:
		h[acceptHeader] = identityOnly[:1:1]
	}
	return accepted
}

var gzipOnly, identityOnly = []string{"gzip"}, []string{"identity"}

// acceptsGzip reads Accept-Encoding (RFC 9110 section 12.5.3). By the letter of it, a
// request without the header accepts anything, but such a client may not support any
// encoding. A word about gzip counts more than one about all others.
func acceptsGzip(h http.Header) bool {
	named, others := false, false
	for _, field := range h[acceptHeader] {
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

func setLength(h http.Header, n int) { h["Content-Length"] = []string{strconv.Itoa(n)} }
