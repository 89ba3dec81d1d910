package semelhttp

import (
	"bytes"
	"net/http"
	"slices"
	"testing"
)

// FuzzResult: anything stored is parsed without a panic, and what was written is read
// unchanged.
func FuzzResult(f *testing.F) {
	f.Add(NewResult(201, http.Header{"Location": {"/1"}, "X-A": {"1", "2"}}, []byte("body")).Data)
	f.Add(appendHead(nil, 201, headers{}.add(http.Header{allowOrigin: {"https://a"}, exposeHeaders: {"X", "Y"}}), nil, "https://a", nil))
	f.Add([]byte{resultVersion, 200, 1, 1, 254, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseResult(data)
		if err != nil {
			return
		}
		h := http.Header{}
		r.set(h, "", r.others(), 0)
		again, err := parseResult(append(appendHead(nil, r.status, headers{}.add(h), nil, "", slices.Sorted(keysOutside(h))), r.body...))
		if err != nil || again.status != r.status || !bytes.Equal(again.body, r.body) {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}

// keysOutside are the names in h that aren't always kept.
func keysOutside(h http.Header) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range h {
			if !slices.Contains(alwaysKept[:], name) && !yield(name) {
				return
			}
		}
	}
}
