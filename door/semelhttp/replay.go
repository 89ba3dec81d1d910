package semelhttp

import (
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/origin"
)

// replay answers with the recorded answer (IDS-IX.1, MAP-FLOW.2). If it can't, it refuses.
func (h *handler) replay(w http.ResponseWriter, r *http.Request, rec *semel.Record) said {
	stored, err := answer.Parse(rec.Result.Data)
	switch {
	case rec.Result.Tombstone:
		return h.refuseRecord(w, rec, notKept(rec, stored.Status))
	case err != nil && (rec.Failure != nil || rec.Disposition != semel.DispositionCompleted):
		return h.refuseRecord(w, rec, settledAsFailed(rec))
	case err != nil:
		return h.refuseRecord(w, rec, notKept(rec, 0))
	case stored.Stream: // which is gone
		return h.refuseRecord(w, rec, notKept(rec, stored.Status))
	}
	header := w.Header()
	coding := header[answer.CodingHeader] // set around the guard
	room := h.recall(header, r, &stored)
	unpacked := answer.Unpack(header, stored.Body, r.Header)
	if coding != nil && header[answer.CodingHeader] == nil {
		header[answer.CodingHeader] = coding
	}
	if unpacked == nil && bodyAllowed(stored.Status) {
		room[0] = strconv.Itoa(len(stored.Body))
		header["Content-Length"] = room[0:1:1]
	}
	w.WriteHeader(stored.Status)
	switch {
	case unpacked != nil:
		if _, err := io.Copy(w, unpacked); err != nil {
			panic(http.ErrAbortHandler) // so that the caller notices that the body is incomplete
		}
	case len(stored.Body) > 0:
		_, _ = w.Write(stored.Body) // a caller who is gone will retry
	}
	return said{status: stored.Status}
}

// recall sets the headers of a recorded answer. It returns memory for one more value.
func (h *handler) recall(header http.Header, r *http.Request, stored *answer.Recorded) (room []string) {
	vary := header["Vary"]
	delete(header, answer.CodingHeader)
	room = stored.Set(header, r.Header.Get(origin.Header), h.route.KeepHeaders, 4)
	room[0], room[1], room[2] = "true", "no-store", "nosniff"
	header[h.route.Profile.Marker] = room[0:1:1]
	header["Cache-Control"] = room[1:2:2]
	header["X-Content-Type-Options"] = room[2:3:3]
	for _, v := range vary {
		if !slices.Contains(header["Vary"], v) {
			header["Vary"] = append(header["Vary"], v)
		}
	}
	if name := h.route.Profile.RetryHeader; name != "" && stored.Status >= 500 {
		header[name] = []string{"false"} // trying again would only get this answer
	}
	return room[3:]
}
