package semelhttp

import (
	"net/http"
	"strconv"

	"github.com/semelhq/semel"
)

// replay answers with what is recorded (IDS-IX.1, MAP-FLOW.2).
func (h *handler) replay(w http.ResponseWriter, r *http.Request, rec *semel.Record) {
	stored, err := parseResult(rec.Result.Data)
	switch {
	case rec.Result.Tombstone:
		h.refuseRecord(w, rec, notKept(stored.status))
		return
	case err != nil && rec.Failure != nil:
		h.refuseRecord(w, rec, settledAsFailed(rec))
		return
	case err != nil:
		h.refuseRecord(w, rec, notKept(0))
		return
	}
	header := w.Header()
	room := stored.set(header, r.Header.Get(originHeader), h.route.KeepHeaders, 4)
	room[0], room[1], room[2] = "true", "no-store", "nosniff"
	header[h.route.Profile.Marker] = room[0:1:1]
	header["Cache-Control"] = room[1:2:2]
	header["X-Content-Type-Options"] = room[2:3:3]
	if name := h.route.Profile.RetryHeader; name != "" && stored.status >= 500 {
		header[name] = []string{"false"} // it would only get this again
	}
	if bodyAllowed(stored.status) {
		room[3] = strconv.Itoa(len(stored.body))
		header["Content-Length"] = room[3:4:4]
	}
	w.WriteHeader(stored.status)
	if len(stored.body) > 0 {
		_, _ = w.Write(stored.body) // a caller that is gone will ask again
	}
}

func setLength(h http.Header, n int) { h["Content-Length"] = []string{strconv.Itoa(n)} }
