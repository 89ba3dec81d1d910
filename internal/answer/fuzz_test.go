package answer

import (
	"bytes"
	"net/http"
	"slices"
	"testing"

	"github.com/semelhq/semel/internal/origin"
)

// FuzzResult: anything stored is parsed without a panic, and what was written is read
// unchanged.
func FuzzResult(f *testing.F) {
	f.Add(append(AppendHead(nil, 201, Headers{}.Add(http.Header{"Location": {"/1"}, "X-A": {"1", "2"}}), nil, "", []string{"X-A"}), "body"...))
	f.Add(AppendHead(nil, 201, Headers{}.Add(http.Header{origin.AllowOrigin: {"https://a"}, origin.ExposeHeaders: {"X", "Y"}}), nil, "https://a", nil))
	f.Add([]byte{resultVersion, 200, 1, 1, 254, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse(data)
		if err != nil {
			return
		}
		h := http.Header{}
		r.Set(h, "", r.Others(), 0)
		again, err := Parse(append(AppendHead(nil, r.Status, Headers{}.Add(h), nil, "", slices.Sorted(keysOutside(h))), r.Body...))
		if err != nil || again.Status != r.Status || !bytes.Equal(again.Body, r.Body) {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}

// keysOutside are the names in h that aren't always kept.
func keysOutside(h http.Header) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range h {
			if !Kept(name) && !yield(name) {
				return
			}
		}
	}
}
