package api

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel/internal/canon"
)

// strictJSON reads what package canon accepts and nothing else, so that no two
// readers can differ about what a body says: duplicate member names, invalid
// UTF-8 and text after the value are refused, at any depth.
var strictJSON = huma.Format{
	Marshal: func(w io.Writer, v any) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false) // a result is shown as it was recorded
		return enc.Encode(v)
	},
	Unmarshal: func(data []byte, v any) error {
		shape, ok := v.(*any)
		if !ok {
			return json.Unmarshal(data, v)
		}
		// huma asks for the shape first, to validate it.
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

// withFloats makes the numbers of a JSON value floats, which is what validation
// compares. Those that are too large for one become the largest: only payloads and
// results may have such numbers, and they are kept as text.
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

// compact reports whether data is JSON that a JSON encoder passes on byte for
// byte.
func compact(data []byte) bool {
	var b bytes.Buffer
	return utf8.Valid(data) && json.Compact(&b, data) == nil && b.Len() == len(data)
}
