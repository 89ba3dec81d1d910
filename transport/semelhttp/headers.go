package semelhttp

import (
	"net/http"
	"slices"
	"strings"
)

// headers is the content of an [http.Header] at one moment, in memory that is
// used again.
type headers []field

type field struct {
	name   string
	values []string
}

// add appends what is in h.
func (f headers) add(h http.Header) headers {
	for name, values := range h {
		f = append(f, field{name, values})
	}
	return f
}

// get is what one header was.
func (f headers) get(name string) []string {
	for i := range f {
		if f[i].name == name {
			return f[i].values
		}
	}
	return nil
}

// restore makes h what it was.
func (f headers) restore(h http.Header) {
	clear(h)
	for _, e := range f {
		h[e.name] = e.values
	}
}

// equal reports whether h is as it was.
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

// forget drops what the headers were, so that they are not kept alive.
func (f headers) forget() headers {
	clear(f)
	return f[:0]
}

// setTrailers sets, after the body, what a handler has set after the status was
// decided: the trailers that it had declared, and those with the server's own
// prefix.
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
