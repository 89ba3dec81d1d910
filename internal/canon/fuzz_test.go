package canon

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
)

func addSeeds(f *testing.F) {
	for _, v := range vectors {
		f.Add([]byte(v.input))
	}
	for _, c := range refusals {
		f.Add([]byte(c.in))
	}
	f.Add([]byte(`[0,-0,1.50,9007199254740993,1e400,1e-400,123456789012345678e-20]`))
	f.Add([]byte(`{"b":{"d":1,"c":[{"f":2,"e":3}]},"a\u0000":"\ud83d\ude02","a":{}}`))
}

// FuzzCanonicalize checks for any input that it is either refused with a
// position, or is JSON for encoding/json too and has a stable canonical form.
func FuzzCanonicalize(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, mode := range []Mode{JCS, Exact} {
			out, err := Canonicalize(in, mode)
			if err != nil {
				e, ok := errors.AsType[*SyntaxError](err)
				if !ok || e.Offset < 0 || e.Offset > len(in) || out != nil {
					t.Fatalf("mode %d: refused as %v with %q", mode, err, out)
				}
				continue
			}
			if !json.Valid(in) {
				t.Fatalf("mode %d: accepted what is no JSON, as %q", mode, out)
			}
			if !json.Valid(out) {
				t.Fatalf("mode %d: wrote what is no JSON: %q", mode, out)
			}
			if again, err := Canonicalize(out, mode); err != nil || !bytes.Equal(again, out) {
				t.Fatalf("mode %d: %q became %q, %v", mode, out, again, err)
			}
		}
	})
}

// FuzzAgainstAnotherImplementation looks for inputs on which JCS mode and
// another implementation of RFC 8785 differ beyond the known differences.
func FuzzAgainstAnotherImplementation(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, in []byte) { agrees(t, in) })
}
