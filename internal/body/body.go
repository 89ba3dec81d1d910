// Package body reads request bodies from strangers.
package body

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// firstRead is how much memory a body gets before any of it has arrived, in bytes: somebody may
// announce more than they send.
const firstRead = 64 << 10

// ErrTooLong says that a body is too long. The connection is closed after the answer, so that
// nobody reads the rest.
var ErrTooLong = errors.New("the body is too long")

// ErrRefused says that something in front of the reader, such as a limit on the bytes in
// flight, has stopped the reading. It answers the request and reports it, so if you get this
// error, do neither.
var ErrRefused = errors.New("the request was refused while its body was read")

// Read reads a body of up to most bytes. Once part of the body has arrived, it makes room for
// everything that the request announces, since growing step by step would take several times
// the memory. The error is [ErrTooLong], wraps [ErrRefused], or says why the body broke off.
func Read(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	var b bytes.Buffer
	if err := ReadInto(&b, w, r, most); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// ReadInto is Read into a buffer, which also has what came before an error.
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

// With returns a copy of a request with another body, for a gateway that passes it on and reads
// the answer itself. The body can be sent again on another connection.
func With(ctx context.Context, r *http.Request, raw []byte) *http.Request {
	out := r.Clone(ctx)
	out.Trailer, out.TransferEncoding = nil, nil
	for _, name := range []string{"Accept-Encoding", "Content-Length", "Expect", "Te", "Trailer", "Connection"} {
		out.Header.Del(name) // the gateway reads the answer
	}
	out.ContentLength, out.Body, out.GetBody = int64(len(raw)), http.NoBody, nil
	if len(raw) > 0 {
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
		out.Body, _ = out.GetBody() // doesn't fail
	}
	return out
}

// ActivityStreams is the profile of ActivityPub's JSON-LD documents.
const ActivityStreams = "https://www.w3.org/ns/activitystreams"

// IsActivity reports whether the header says that the body is an ActivityPub document.
func IsActivity(h http.Header) bool {
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (media == "application/activity+json" ||
		media == "application/ld+json" && slices.Contains(strings.Fields(params["profile"]), ActivityStreams))
}

// IsJSON reports whether the header says that the body is plain JSON in UTF-8, as
// application/json or one of the other media types. Web page forms, which any site can make a
// browser send, can't have such a header.
func IsJSON(h http.Header, others ...string) bool {
	if CodingOf(h) != Plain {
		return false
	}
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, named := params["charset"]
	return err == nil && (media == "application/json" || slices.Contains(others, media)) && (!named || strings.EqualFold(charset, "utf-8"))
}
