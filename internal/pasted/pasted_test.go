package pasted

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// shown is a request as one line: method, host, target, headers of note and body.
func shown(t *testing.T, text string) string {
	t.Helper()
	r, body, err := Parse(text)
	if err != nil {
		return "error: " + err.Error()
	}
	if sent, err := io.ReadAll(r.Body); err != nil || string(sent) != string(body) {
		t.Errorf("the body is %q and %q, %v", sent, body, err)
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s %s", r.Method, r.Host, r.RequestURI)
	for _, name := range []string{"Authorization", "Content-Type", "Idempotency-Key", "Cookie", "X-Empty"} {
		if v, ok := r.Header[name]; ok {
			s.WriteString(" " + name + "=" + strings.Join(v, ","))
		}
	}
	return s.String() + " [" + string(body) + "]"
}

func TestRequestsAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"POST /charges HTTP/1.1\nHost: pay.example\nIdempotency-Key: k1\n\n{\"a\":1}":               `POST pay.example /charges Idempotency-Key=k1 [{"a":1}]`,
		"POST /charges HTTP/1.1\r\nHost: pay.example\r\nContent-Length: 99\r\n\r\nline 1\n\nline 2": "POST pay.example /charges [line 1\n\nline 2]",
		"  GET /a?b=c": "GET  /a?b=c []",
		"GET https://pay.example:8443/a HTTP/1.1":                                     "GET pay.example:8443 /a []",
		"PUT /a\nAuthorization: Basic c2hvcDpzZWNyZXQ=\nCookie: c=1\nX-Empty:\n\n[1]": `PUT  /a Authorization=Basic c2hvcDpzZWNyZXQ= Cookie=c=1 X-Empty= [[1]]`,
	} {
		if got := shown(t, text); got != want {
			t.Errorf("%s\nis read as %s\nwant       %s", text, got, want)
		}
	}
}

func TestWhatCantBeReadIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "no request",
		"hello":                         "not that of a request",
		"curl http://a -d 1":            "curl -v shows",
		"POST / HTTP/1.1\nnonsense\n\n": "header",
		"GET  nowhere HTTP/1.1":         "isn't the address",
		"G/T /a HTTP/1.1":               "isn't a method",
		"curl http://a":                 "isn't a method",
		strings.Repeat("x", MaxText+1):  "longer than",
	} {
		if got := shown(t, text); !strings.HasPrefix(got, "error: ") || !strings.Contains(got, want) {
			t.Errorf("%.60q is read as %.200s, want an error with %q", text, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("POST /a HTTP/1.1\nHost: h\n\nbody")
	f.Fuzz(func(t *testing.T, text string) {
		r, _, err := Parse(text)
		if err == nil && (r.URL.Host != "" || !strings.HasPrefix(r.RequestURI, "/") && r.RequestURI != "*") {
			t.Errorf("%q is a request to %q %q", text, r.URL.Host, r.RequestURI)
		}
	})
}
