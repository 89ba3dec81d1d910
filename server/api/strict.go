package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/wire"
)

// strictJSON reads only what package canon accepts, so that no two readers can disagree
// about a body: it refuses duplicate member names, invalid UTF-8 and text after the
// value, at any depth.
var strictJSON = huma.Format{
	Marshal: func(w io.Writer, v any) error { return wire.NewEncoder(w).Encode(v) },
	Unmarshal: func(data []byte, v any) error {
		shape, ok := v.(*any)
		if !ok {
			// huma asks for this also where the untyped value was refused.
			if _, err := outlineOf(data); err != nil {
				return err
			}
			return json.Unmarshal(data, v)
		}
		// huma asks for the untyped value first, to validate it.
		outlined, err := outlineOf(data) // first, because it costs least
		if err == nil {
			err = canon.Write(io.Discard, data, canon.Exact)
		}
		if err != nil {
			return err
		}
		data = outlined
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		if err := dec.Decode(shape); err != nil {
			return err
		}
		*shape = withFloats(*shape)
		return nil
	},
}

const (
	// fewValues are read as they are.
	fewValues = 1000
	// maxValues bounds the values of a body without those that callers fill as they
	// like: a tree of them, and a complaint about each, take many times their bytes. The
	// largest batch has fewer.
	maxValues = 10_000
)

var errTooMany = errors.New("the body has more members and items than any request")

// outline is a body without what callers fill as they like, which is not validated.
type outline struct{ values int }

// outlineOf is the outline of a body; of a small one, the body.
func outlineOf(data []byte) ([]byte, error) {
	if canon.Values(data) <= fewValues {
		return data, nil
	}
	o := outline{}
	if data = o.add(nil, bytes.TrimSpace(data)); o.values > maxValues {
		return nil, errTooMany
	}
	return data, nil
}

// add appends the outline of a value. It stops behind maxValues.
func (o *outline) add(dst, value []byte) []byte {
	if o.values++; o.values > maxValues {
		return dst
	}
	switch begin := len(dst); value[0] {
	case '{':
		for name, v := range canon.Members(value) {
			if dst = append(dst, ','); len(dst) == begin+1 {
				dst[begin] = '{'
			}
			dst, _ = canon.AppendString(dst, string(name)) // it was valid where it stood
			dst = append(dst, ':')
			if string(name) == "payload" || string(name) == "result" {
				dst = append(dst, '0')
			} else if dst = o.add(dst, v); o.values > maxValues {
				return dst
			}
		}
		if len(dst) == begin {
			dst = append(dst, '{')
		}
		return append(dst, '}')
	case '[':
		for v := range canon.Items(value) {
			if dst = append(dst, ','); len(dst) == begin+1 {
				dst[begin] = '['
			}
			if dst = o.add(dst, v); o.values > maxValues {
				return dst
			}
		}
		if len(dst) == begin {
			dst = append(dst, '[')
		}
		return append(dst, ']')
	}
	return append(dst, value...)
}

// withFloats turns the numbers of a JSON value into floats, which validation compares.
// Numbers that are too large become the largest float: only payloads and results may have
// them, and they are kept as text.
func withFloats(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			f = math.Copysign(math.MaxFloat64, f)
		}
		return f
	case []any:
		for i := range v {
			v[i] = withFloats(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = withFloats(v[k])
		}
	}
	return v
}
