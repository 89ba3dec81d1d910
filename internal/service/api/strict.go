package api

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/wire"
)

// strictJSON reads only what package canon accepts, so that no two readers can disagree about a
// body: it refuses duplicate member names, invalid UTF-8 and text after the value, at any
// depth. Whoever takes the fingerprint of a payload checks it as strictly.
var strictJSON = huma.Format{
	Marshal: func(w io.Writer, v any) error { return wire.NewEncoder(w).Encode(v) },
	Unmarshal: func(data []byte, v any) error {
		o, err := outlineOf(data)
		if err != nil {
			return err
		}
		// huma asks for the untyped value first, to validate it, and for the typed one also where
		// that was refused.
		shape, untyped := v.(*any)
		if !untyped {
			return json.Unmarshal(data, v)
		}
		outlined := o.text(data)
		for _, text := range append(o.kept, outlined) {
			if err := canon.Check(text, canon.Exact); err != nil {
				return err
			}
		}
		return json.Unmarshal(outlined, shape)
	},
}

// maxValues bounds the values of a body, apart from payloads and results: a tree of them, and a
// complaint about each, take many times their bytes. The largest batch has fewer.
const (
	maxValues = 10_000
	maxWide   = 1000 // in one object or list, of which the largest has as many
)

// outline is a body without what callers fill as they like, which isn't validated.
type outline struct {
	values int
	free   [][]byte // what is left out: payloads and results, in their order
	kept   [][]byte // those of which more than a fingerprint is kept
}

func outlineOf(data []byte) (*outline, error) {
	o := &outline{}
	if o.walk(data, false); o.values > maxValues {
		return nil, errors.New("the body has more members and items than any request")
	}
	return o, nil
}

// walk stops behind maxValues, and where the text isn't JSON: the rest is then part of the
// outline, and refused with it. sent says that the value is in messages of the call.
func (o *outline) walk(value []byte, sent bool) {
	if o.values++; o.values > maxValues {
		return
	}
	wide := 0
	for name, v := range jsonscan.Members(value) {
		o.wider(&wide)
		switch string(name) {
		case "payload", "result":
			if o.free = append(o.free, v); sent || string(name) == "result" {
				o.kept = append(o.kept, v)
			}
		default:
			o.walk(v, sent || string(name) == "messages")
		}
		if o.values > maxValues {
			return
		}
	}
	for v := range jsonscan.Items(value) {
		o.wider(&wide)
		if o.walk(v, sent); o.values > maxValues {
			return
		}
	}
}

func (o *outline) wider(n *int) {
	if *n++; *n > maxWide {
		o.values = maxValues
	}
}

// text is the outline, with a number for each part that it leaves out.
func (o *outline) text(data []byte) []byte {
	if len(o.free) == 0 {
		return data
	}
	size, end := len(data), 0
	for _, v := range o.free {
		size += 1 - len(v)
	}
	text := make([]byte, 0, size)
	for _, v := range o.free {
		begin := jsonscan.Offset(data, v)
		text = append(append(text, data[end:begin]...), '0')
		end = begin + len(v)
	}
	return append(text, data[end:]...)
}
