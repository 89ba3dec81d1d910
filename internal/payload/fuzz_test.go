package payload

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/store"
)

func ruleOf(mode Mode) *Rule {
	return &Rule{Mode: mode, Max: 10 << 20, Large: make(chan struct{}, 1)}
}

// take reads a request and digests it.
func take(t *testing.T, rule *Rule, r *http.Request) store.Fingerprint {
	t.Helper()
	var p Payload
	defer p.Release()
	if err := p.Read(rule, r); err != nil {
		t.Fatal(err)
	}
	fp, err := p.Fingerprint(Places{})
	if err != nil {
		t.Fatal(err)
	}
	return fp
}

// digestOf is the fingerprint of a request, whole or in pieces.
func digestOf(t *testing.T, rule *Rule, target, contentType string, body []byte, size int64) store.Fingerprint {
	t.Helper()
	path, query, _ := strings.Cut(target, "?")
	r := &http.Request{
		Method: "POST", URL: &url.URL{Path: path, RawQuery: query}, RequestURI: target, ContentLength: size,
		Header: http.Header{"Content-Type": {contentType}}, Body: http.NoBody,
	}
	if body != nil {
		r.Body = readCloser{bytes.NewReader(body)}
	}
	return take(t, rule, r)
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// FuzzFingerprintRaw: two requests are the same exactly if target and body are, in
// whatever pieces the body comes.
func FuzzFingerprintRaw(f *testing.F) {
	f.Add("/a", []byte("x"), "/a", []byte("x"))
	f.Add("/a", []byte("bc"), "/ab", []byte("c"))
	f.Add("/a", []byte{}, "/a", []byte{0})
	f.Fuzz(func(t *testing.T, path1 string, body1 []byte, path2 string, body2 []byte) {
		if strings.Contains(path1+path2, "?") || !strings.HasPrefix(path1, "/") || !strings.HasPrefix(path2, "/") {
			t.Skip("not paths")
		}
		rule := ruleOf(Raw)
		a := digestOf(t, rule, path1, "", body1, int64(len(body1)))
		if b := digestOf(t, rule, path1, "", body1, -1); a != b {
			t.Fatal("a chunked body is another")
		}
		b := digestOf(t, rule, path2, "", body2, int64(len(body2)))
		if same := path1 == path2 && bytes.Equal(body1, body2); (a == b) != same {
			t.Fatalf("equal fingerprints: %t, equal requests: %t", a == b, same)
		}
	})
}

// FuzzFingerprintForm: encoding a parsed form again does not change it, and
// reversing values of one name does.
func FuzzFingerprintForm(f *testing.F) {
	f.Add("a=1&b=2&a=3")
	f.Add("b=%20&a=+&&c")
	f.Add("a=%zz")
	f.Fuzz(func(t *testing.T, text string) {
		const form = "application/x-www-form-urlencoded"
		rule := ruleOf(Auto)
		pairs, ok := parsePairs(text)
		if !ok {
			return
		}
		encode := func(pairs []pair) string {
			var items []string
			for _, p := range pairs {
				items = append(items, url.QueryEscape(p.name)+"="+url.QueryEscape(p.value))
			}
			return strings.Join(items, "&")
		}
		a := digestOf(t, rule, "/", form, []byte(text), int64(len(text)))
		again := encode(pairs)
		if b := digestOf(t, rule, "/", form, []byte(again), -1); a != b {
			t.Fatalf("%q and %q differ", text, again)
		}
		if b, c := digestOf(t, rule, "/?"+text, "", nil, 0), digestOf(t, rule, "/?"+again, "", nil, 0); b != c {
			t.Fatalf("the queries %q and %q differ", text, again)
		}
		slices.Reverse(pairs)
		stable := slices.Clone(pairs)
		slices.SortStableFunc(stable, func(x, y pair) int { return strings.Compare(x.name, y.name) })
		original, _ := parsePairs(text)
		reversed := encode(pairs)
		b := digestOf(t, rule, "/", form, []byte(reversed), -1)
		if same := slices.Equal(stable, original); (a == b) != same {
			t.Fatalf("%q and %q: equal fingerprints %t, equal meaning %t", text, reversed, a == b, same)
		}
	})
}

// FuzzFingerprintParts: the content matters, the boundary doesn't.
func FuzzFingerprintParts(f *testing.F) {
	f.Add("amount", []byte("1"), []byte("2"))
	f.Add("a\"b", []byte("--x\r\n"), []byte(""))
	f.Fuzz(func(t *testing.T, name string, one, two []byte) {
		rule := ruleOf(Auto)
		encode := func(boundary string, parts ...[]byte) (string, []byte) {
			var b bytes.Buffer
			w := multipart.NewWriter(&b)
			if err := w.SetBoundary(boundary); err != nil {
				t.Fatal(err)
			}
			for _, content := range parts {
				p, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {multipart.FileContentDisposition(name, "f")}})
				if err != nil {
					t.Skip("not a name")
				}
				_, _ = p.Write(content)
			}
			_ = w.Close()
			return w.FormDataContentType(), b.Bytes()
		}
		const b1, b2 = "0f1e2d3c4b5a69788796a5b4c3d2e1f0", "f0e1d2c3b4a5968778695a4b3c2d1e0f"
		if bytes.Contains(append(one, two...), []byte(b1)) || bytes.Contains(append(one, two...), []byte(b2)) {
			t.Skip("the content has the boundary")
		}
		digest := func(boundary string, parts ...[]byte) store.Fingerprint {
			media, body := encode(boundary, parts...)
			return digestOf(t, rule, "/", media, body, int64(len(body)))
		}
		a := digest(b1, one, two)
		if a != digest(b2, one, two) {
			// A name that breaks its header makes a body that is not multipart,
			// and is then compared with its boundary.
			if _, err := appendParts(nil, bytes.NewReader(second(encode(b1, one, two))), b1); err == nil {
				t.Fatal("the boundary matters")
			}
			return
		}
		if same := bytes.Equal(one, two); (a == digest(b1, two, one)) != same {
			t.Fatalf("parts in another order: equal contents %t", same)
		}
	})
}

func second[A, B any](_ A, b B) B { return b }
