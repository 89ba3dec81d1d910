package semelhttp

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
)

// replay answers with what is recorded (IDS-IX.1, MAP-FLOW.2). If that can't be given, it
// refuses.
func (h *handler) replay(w http.ResponseWriter, r *http.Request, rec *semel.Record) said {
	stored, err := parseResult(rec.Result.Data)
	switch {
	case rec.Result.Tombstone:
		return h.refuseRecord(w, rec, notKept(stored.status))
	case err != nil && rec.Failure != nil:
		return h.refuseRecord(w, rec, settledAsFailed(rec))
	case err != nil:
		return h.refuseRecord(w, rec, notKept(0))
	}
	header := w.Header()
	room := stored.set(header, r.Header.Get(originHeader), h.route.KeepHeaders, 4)
	room[0], room[1], room[2] = "true", "no-store", "nosniff"
	header[h.route.Profile.Marker] = room[0:1:1]
	header["Cache-Control"] = room[1:2:2]
	header["X-Content-Type-Options"] = room[2:3:3]
	if name := h.route.Profile.RetryHeader; name != "" && stored.status >= 500 {
		header[name] = []string{"false"} // trying again would only get this answer
	}
	if packed(header) && !acceptsGzip(r.Header) {
		return h.unpack(w, &stored)
	}
	if bodyAllowed(stored.status) {
		room[3] = strconv.Itoa(len(stored.body))
		header["Content-Length"] = room[3:4:4]
	}
	w.WriteHeader(stored.status)
	if len(stored.body) > 0 {
		_, _ = w.Write(stored.body) // a caller who is gone will ask again
	}
	return said{status: stored.status}
}

// packed reports whether the recorded body is compressed, because the first caller
// accepted that.
func packed(h http.Header) bool {
	encodings := h["Content-Encoding"]
	return len(encodings) == 1 && strings.EqualFold(encodings[0], "gzip")
}

// acceptsGzip reads Accept-Encoding (RFC 9110 section 12.5.3). By the letter of it, a
// request without the header accepts anything, but such a client may not support any
// encoding.
func acceptsGzip(h http.Header) bool {
	for _, field := range h["Accept-Encoding"] {
		for item := range strings.SplitSeq(field, ",") {
			coding, params, _ := strings.Cut(item, ";")
			switch strings.ToLower(strings.TrimSpace(coding)) {
			case "gzip", "x-gzip", "*":
				weight, found := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
				if q, err := strconv.ParseFloat(weight, 64); !found || err != nil || q > 0 {
					return true
				}
			}
		}
	}
	return false
}

// unpack sends a recorded body uncompressed. That is another representation, so it
// doesn't send the ETag of this one.
func (h *handler) unpack(w http.ResponseWriter, stored *recorded) said {
	header := w.Header()
	delete(header, "Content-Encoding")
	delete(header, "Etag")
	body, err := gzip.NewReader(bytes.NewReader(stored.body))
	if err != nil {
		return h.refuse(w, notKept(stored.status))
	}
	w.WriteHeader(stored.status)
	if _, err := io.Copy(w, body); err != nil {
		panic(http.ErrAbortHandler) // so that the caller notices that the body isn't whole
	}
	return said{status: stored.status}
}

func setLength(h http.Header, n int) { h["Content-Length"] = []string{strconv.Itoa(n)} }
