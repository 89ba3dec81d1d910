package answer

import (
	"net/http"
	"slices"
	"strings"
)

// Headers is a snapshot of an [http.Header], in reused memory.
type Headers []field

type field struct {
	name   string
	values []string
}

// Add appends the headers of h.
func (f Headers) Add(h http.Header) Headers {
	for name, values := range h {
		f = append(f, field{name, values})
	}
	return f
}

// Get returns the values of one header.
func (f Headers) Get(name string) []string {
	for i := range f {
		if f[i].name == name {
			return f[i].values
		}
	}
	return nil
}

// Beyond returns the values of one header, unless outer has the same: then they were there
// before a handler ran, and belong to one request.
func (f Headers) Beyond(outer Headers, name string) []string {
	values := f.Get(name)
	if slices.Equal(values, outer.Get(name)) {
		return nil
	}
	return values
}

// Restore resets h to this content.
func (f Headers) Restore(h http.Header) {
	clear(h)
	for _, e := range f {
		h[e.name] = e.values
	}
}

// Equal reports whether h still has this content.
func (f Headers) Equal(h http.Header) bool {
	if len(f) != len(h) {
		return false
	}
	for _, e := range f {
		if !slices.Equal(h[e.name], e.values) {
			return false
		}
	}
	return true
}

// SetTrailers sends, after the body, the trailers that a handler has set after the status:
// declared ones, and any with [http.TrailerPrefix].
func SetTrailers(h, late http.Header) {
	for _, list := range h["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			if values, ok := late[name]; ok {
				h[name] = values
			}
		}
	}
	for name, values := range late {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			h[name] = values
		}
	}
}
