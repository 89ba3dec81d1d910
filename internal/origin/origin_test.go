package origin

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestFault(t *testing.T) {
	for origin, good := range map[string]bool{
		"https://shop.example": true, "http://localhost:8080": true, "https://shop.example:80": true,
		"https://shop.example/": false, "https://Shop.example": false, "https://*.example": false, "null": false, "": false,
		"https://shop.example:443": false, "http://shop.example:80": false, "https://a@shop.example": false,
	} {
		if fault := Fault(origin); (fault == "") != good {
			t.Errorf("%q: %q", origin, fault)
		}
	}
}

// TestWriter widens nothing but the headers of the guard, and those only where the page may
// read the answer.
func TestWriter(t *testing.T) {
	const shop = "https://shop.example"
	for name, c := range map[string]struct {
		method, origin, allowed string
		own                     bool
		want                    [4]string // allowed origin, credentials, headers to send and to read
	}{
		"the guard's own answer":        {"POST", shop, "", false, [4]string{shop, "true", "", "Mark, Retry-After, Link"}},
		"a handler's for another page":  {"POST", shop, "https://other.example", true, [4]string{"https://other.example"}},
		"a handler's that allows none":  {"POST", shop, "", true, [4]string{}},
		"a handler's for this page":     {"POST", shop, shop, true, [4]string{shop, "", "", "Mark, Retry-After, Link"}},
		"a preflight for every page":    {"OPTIONS", shop, "*", true, [4]string{"*", "", "Key", ""}},
		"a page of none of the origins": {"POST", "https://evil.example", "", false, [4]string{}},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		r.Header.Set(Header, c.origin)
		if c.method == "OPTIONS" {
			r.Header.Set(requestMethod, "POST")
		}
		rec := httptest.NewRecorder()
		w := Writer(rec, r, []string{shop}, "Key", "Mark")
		if c.own {
			w = Own(w)
		}
		if c.allowed != "" {
			w.Header().Set(AllowOrigin, c.allowed)
		}
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = w.Write([]byte("x"))
		h := rec.Header()
		if got := [4]string{h.Get(AllowOrigin), h.Get(AllowCredentials), h.Get(allowHeaders), h.Get(ExposeHeaders)}; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
