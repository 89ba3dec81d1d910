package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/semelhq/semel/door/inbox"
	"github.com/semelhq/semel/internal/body"
)

// codings are the values of Source.Decode.
var codings = map[string]body.Coding{"gzip": body.Gzip, "deflate": body.Deflate}

// decoders bounds how many unverified deliveries are decoded at a time: a few bytes may decode
// to many.
var decoders = make(chan struct{}, runtime.GOMAXPROCS(0))

// decodes reports whether a delivery is compressed in a way that the source allows.
func (v *Verifier) decodes(d *Delivery) bool {
	return v.source.Decode != "" && body.CodingOf(d.Header) == codings[v.source.Decode]
}

// slot waits for one of the decoders, if a delivery needs it.
func (v *Verifier) slot(ctx context.Context, d *Delivery) (free func(), err error) {
	if !v.decodes(d) {
		return func() {}, nil
	}
	select {
	case decoders <- struct{}{}:
		return func() { <-decoders }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Decode returns a delivery with its body decoded, if it came compressed as the source says, or
// else unchanged. The error is a [*Refusal].
func (v *Verifier) Decode(d *Delivery) (*Delivery, error) {
	if !v.decodes(d) {
		return d, nil
	}
	src, err := codings[v.source.Decode].Decode(bytes.NewReader(d.Body))
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(src, v.maxBody+1))
	}
	switch {
	case err != nil:
		return nil, inbox.Refuse(CodeUnreadable, "the body isn't exactly one %s stream, as its Content-Encoding says", v.source.Decode)
	case int64(len(text)) > v.maxBody:
		return nil, inbox.Refuse(inbox.CodeTooLong, "the body is longer than %d bytes when it is decoded", v.maxBody)
	}
	header := d.Header.Clone()
	header.Del("Content-Encoding")
	plain := &Delivery{Header: header, Body: text, Query: d.Query}
	if v.source.SignsCompressed {
		plain.sent = d.Body
	}
	return plain, nil
}

// named adds to a refusal that the body is encoded, which nobody would guess otherwise.
func (v *Verifier) named(d *Delivery, err error) error {
	refused, ok := errors.AsType[*Refusal](err)
	if !ok || body.CodingOf(d.Header) == body.Plain {
		return err
	}
	switch refused.Code {
	case CodeSignatureWrong, CodeUnreadable, CodeUnidentified:
	default:
		return err // it was read in the form that was signed
	}
	why := "the body has a Content-Encoding that can't be decoded"
	for name, coding := range codings {
		if coding == body.CodingOf(d.Header) {
			why = "the body is compressed (Content-Encoding: " + name + "): if the sender signs it before, write decode: " + name + " into the source"
			if refused.Code != CodeSignatureWrong {
				why += ", and signs_compressed: true, because it signs it afterwards"
			}
		}
	}
	return &Refusal{Code: refused.Code, Err: fmt.Errorf("%w; %s", refused.Err, why)}
}
