package ids

import (
	"bytes"
	"cmp"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/canon"
)

// readReason reads the body of a request to undo a command, as strictly as an envelope.
func readReason(w http.ResponseWriter, req *http.Request) (reason string, err error) {
	text, err := readBody(w, req)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return "", err
	}
	if text, err = canon.Canonicalize(text, canon.Exact); err != nil {
		return "", &Error{Reason: ReasonEnvelope, Message: "no strict JSON", Err: err}
	}
	r := &envelopeReader{}
	r.object("", text, members{"reason": func(p string, v []byte) {
		if string(v) != `""` {
			reason = r.text(p, v, maxReason)
		}
	}})
	return reason, r.err()
}

// maxReason bounds the reason for undoing a command, in bytes.
const maxReason = 1 << 10

// readBody reads the body of a request. If it is too large, the connection is closed
// afterwards, so that the rest isn't read.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if !isJSON(r.Header) {
		return nil, &semel.Error{Code: door.CodeUnsupportedMedia, Message: "Nothing was executed: the body is to be JSON in UTF-8, with Content-Type application/json and no Content-Encoding."}
	}
	text, err := body.Read(w, r, MaxEnvelope)
	switch {
	case errors.Is(err, body.ErrTooLong):
		return nil, &semel.Error{Code: door.CodeTooLarge, Message: "Nothing was executed: the body has more than " + strconv.Itoa(MaxEnvelope>>10) + " KiB."}
	case err != nil && !errors.Is(err, body.ErrRefused):
		return nil, &Error{Reason: ReasonEnvelope, Message: "the body broke off; send all of it again"}
	}
	return text, err
}

// isJSON reports whether the header says that the body is JSON in UTF-8. Forms of web pages,
// which any site can make a browser send, can't say that.
func isJSON(h http.Header) bool {
	if body.CodingOf(h) != body.Plain {
		return false
	}
	media, params, err := mime.ParseMediaType(cmp.Or(h.Get("Content-Type"), "application/json"))
	if err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") {
		return false
	}
	charset, named := params["charset"]
	return !named || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "us-ascii")
}
