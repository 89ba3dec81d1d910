package semelhttp

import (
	"net/http"
	"slices"
	"strings"
)

// headers is the content of an [http.Header] at one moment, in reused memory.
type headers []field

type field struct {
	name   string
	values []string
}

// add appends the headers of h.
func (f headers) add(h http.Header) headers {
	for name, values := range h {
		f = append(f, field{name, values})
	}
	return f
}

// get returns the values of one header.
func (f headers) get(name string) []string {
	for i := range f {
		if f[i].name == name {
			return f[i].values
		}
	}
	return nil
}

// beyond returns the values of one header, unless outer has the same: then they were there
// before a handler ran, and belong to one request.
func (f headers) beyond(outer headers, name string) []string {
	values := f.get(name)
	if slices.Equal(values, outer.get(name)) {
		return nil
	}
	return values
}

// restore gives h this content back.
func (f headers) restore(h http.Header) {
	clear(h)
	for _, e := range f {
		h[e.name] = e.values
	}
}

// equal reports whether h still has this content.
func (f headers) equal(h http.Header) bool {
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

// forget drops the content, so that the values can be freed.
func (f headers) forget() headers {
	clear(f)
	return f[:0]
}

// setTrailers sets, after the body, the trailers that a handler has set after it wrote
// the status: those that it declared, and those with [http.TrailerPrefix].
func setTrailers(h, late http.Header) {
	if late == nil {
		return
	}
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
