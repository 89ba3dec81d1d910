package api

import (
	"bytes"
	"encoding/json"
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
			return json.Unmarshal(data, v)
		}
		// huma asks for the untyped value first, to validate it.
		if _, err := canon.Canonicalize(data, canon.Exact); err != nil {
			return err
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		if err := dec.Decode(shape); err != nil {
			return err
		}
		*shape = withFloats(*shape)
		return nil
	},
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
