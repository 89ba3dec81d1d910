// Package body reads the bodies of requests from strangers.
package body

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// firstRead is how much memory a body gets before any of it has come, in bytes: somebody
// may announce more than they send.
const firstRead = 64 << 10

// ErrTooLong says that a body is longer than it may be. The connection is closed after the
// answer, so that the rest isn't read.
var ErrTooLong = errors.New("the body is too long")

// ErrRefused says that something in front of the reader, such as a limit on the bytes in
// flight, has ended the reading. It answers the request and tells of it, so whoever gets this
// error does neither.
var ErrRefused = errors.New("the request was refused while its body was read")

// Read reads a body of up to most bytes. It makes room for what the request announces once
// some of that has come, and not by and by, which would take several times the memory. The
// error is [ErrTooLong], wraps [ErrRefused], or says why the body broke off.
func Read(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	var b bytes.Buffer
	if err := ReadInto(&b, w, r, most); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// ReadInto is Read into a buffer, which has what came before an error, too.
func ReadInto(b *bytes.Buffer, w http.ResponseWriter, r *http.Request, most int64) error {
	limited := http.MaxBytesReader(w, r.Body, most)
	announced := min(max(r.ContentLength, 0), most)
	b.Grow(int(min(announced, firstRead)) + bytes.MinRead)
	_, err := io.CopyN(b, limited, firstRead)
	if err == nil {
		b.Grow(int(max(announced-firstRead, 0)) + bytes.MinRead)
		_, err = b.ReadFrom(limited)
	}
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return ErrTooLong
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// ActivityStreams is the profile of JSON-LD documents that are of ActivityPub.
const ActivityStreams = "https://www.w3.org/ns/activitystreams"

// IsActivity reports whether the header says that the body is a document of ActivityPub.
func IsActivity(h http.Header) bool {
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (media == "application/activity+json" ||
		media == "application/ld+json" && slices.Contains(strings.Fields(params["profile"]), ActivityStreams))
}

// IsJSON reports whether the header says that the body is plain JSON in UTF-8, as
// application/json or another of the media types. Forms of web pages, which any site can
// make a browser send, can't have such a header.
func IsJSON(h http.Header, others ...string) bool {
	if CodingOf(h) != Plain {
		return false
	}
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, named := params["charset"]
	return err == nil && (media == "application/json" || slices.Contains(others, media)) && (!named || strings.EqualFold(charset, "utf-8"))
}
