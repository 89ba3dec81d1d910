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
		"GET https://pay.example:8443/a HTTP/1.1":              "GET pay.example:8443 /a []",
		"curl https://pay.example":                             "GET pay.example / []",
		"$ curl -sS pay.example/a?b=c#part":                    "GET pay.example /a?b=c []",
		`curl -XPOST 'http://h/a' -H 'Idempotency-Key: "k 1"'`: `POST h /a Idempotency-Key="k 1" []`,
		`curl http://h/a -d a=1 -d b=2`:                        `POST h /a Content-Type=application/x-www-form-urlencoded [a=1&b=2]`,
		`curl http://h/a --json '{"a":1}'`:                     `POST h /a Content-Type=application/json [{"a":1}]`,
		"curl http://h/a \\\n  -H 'content-type: application/json' \\\n  --data-raw $'{\"a\":\"it\\'s\\u0021\"}' \\\n  --compressed": `POST h /a Content-Type=application/json [{"a":"it's!"}]`,
		`curl -G http://h/a --data-urlencode "q=a b"`:                "GET h /a?q=a+b []",
		`curl -u shop:secret http://h/a -b c=1 -H X-Empty\;`:         "GET h /a Authorization=Basic c2hvcDpzZWNyZXQ= Cookie=c=1 X-Empty= []",
		`curl "http://h/a" --request=PUT -d "a\"b" -H Content-Type:`: `PUT h /a [a"b]`,
		`curl --max-time 5 -o out.json http://h/a -I`:                "GET h /a []",
	} {
		if strings.Contains(text, " -I") {
			want = strings.Replace(want, "GET", "HEAD", 1)
		}
		if got := shown(t, text); got != want {
			t.Errorf("%s\nis read as %s\nwant       %s", text, got, want)
		}
	}
}

func TestWhatCantBeReadIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "no request",
		"hello":                              "neither a curl command",
		"POST / HTTP/1.1\nnonsense\n\n":      "header",
		"GET  nowhere HTTP/1.1":              "isn't the address",
		"curl":                               "no address",
		"curl -s":                            "no address",
		"curl http://a http://b":             "more than one",
		"curl http://a -d @file":             "in a file",
		"curl http://a -F a=b":               "parts of a form",
		"curl http://a -T file":              "reads a file",
		"curl http://a | sh":                 "outside of quotes",
		"curl http://a; rm -rf /":            "outside of quotes",
		"curl http://$HOST/":                 "a shell replaces",
		`curl "http://a/$(id)"`:              "a shell replaces",
		`curl "http://a`:                     "never closed",
		"curl http://a\nrm":                  "goes on",
		"curl http://a -H":                   "needs a value",
		"curl http://a -H nonsense":          "isn't a header",
		"curl http://a -X 'GET /'":           "isn't a method",
		`curl $'http://a\q'`:                 "isn't known",
		strings.Repeat("x", MaxText+1):       "longer than",
		"curl http://a -H $'A: b\\r\\nC: d'": "isn't a header",
	} {
		if got := shown(t, text); !strings.HasPrefix(got, "error: ") || !strings.Contains(got, want) {
			t.Errorf("%.60q is read as %.200s, want an error with %q", text, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`curl -XPOST 'http://h/a' -H "A: \"b" -d $'x\n'`)
	f.Add("POST /a HTTP/1.1\nHost: h\n\nbody")
	f.Fuzz(func(t *testing.T, text string) {
		r, _, err := Parse(text)
		if err == nil && (r.URL.Host != "" || !strings.HasPrefix(r.RequestURI, "/") && r.RequestURI != "*") {
			t.Errorf("%q is a request to %q %q", text, r.URL.Host, r.RequestURI)
		}
	})
}
