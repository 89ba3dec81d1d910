package semelhttp

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
)

func FuzzKey(f *testing.F) {
	for _, s := range []string{"k", `"k"`, `"a\"b\\c"`, `"a`, `"a";v=1`, "a,b", "", `""`, " ", "ü", `"a"b`, `"\`, "\x00", `a"b`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, field string) {
		if key, fault := parseKey(field, true); (key == "") != (fault != "") {
			t.Fatalf("opaque key %q, fault %q", key, fault)
		}
		key, fault := parseKey(field, false)
		if (key == "") != (fault != "") {
			t.Fatalf("key %q, fault %q", key, fault)
		}
		if fault != "" {
			return
		}
		for i := range len(key) {
			if !printable(key[i]) {
				t.Fatalf("key %q has a character that is not printable", key)
			}
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, fault := parseKey(quoted, false); again != key {
			t.Fatalf("%q became %q, but quoted %q, %s", field, key, again, fault)
		}
		if strings.HasPrefix(key, `"`) || strings.ContainsAny(key, ` ",;`) {
			return // a key that has no bare form
		}
		if again, fault := parseKey(key, false); again != key {
			t.Fatalf("%q became %q, but bare %q, %s", field, key, again, fault)
		}
	})
}

func fuzzHandler(mode BodyMode) *handler {
	return &handler{guard: &Guard{large: make(chan struct{}, 1)}, route: Route{Body: mode}.withDefaults()}
}

// take reads a request and digests it.
func take(h *handler, r *http.Request, sc *scratch) (semel.Fingerprint, error) {
	if err := h.read(r, sc); err != nil {
		return semel.Fingerprint{}, err
	}
	return h.fingerprint(r, sc, nil)
}

// digestOf is the fingerprint of a request, whole or in pieces.
func digestOf(t *testing.T, h *handler, target, contentType string, body []byte, size int64) semel.Fingerprint {
	t.Helper()
	path, query, _ := strings.Cut(target, "?")
	r := &http.Request{
		Method: "POST", URL: &url.URL{Path: path, RawQuery: query}, RequestURI: target, ContentLength: size,
		Header: http.Header{"Content-Type": {contentType}}, Body: http.NoBody,
	}
	if body != nil {
		r.Body = readCloser{bytes.NewReader(body)}
	}
	sc := new(scratch)
	defer sc.spool.discard()
	fp, err := take(h, r, sc)
	if err != nil {
		t.Fatal(err)
	}
	return fp
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
		h := fuzzHandler(BodyRaw)
		a := digestOf(t, h, path1, "", body1, int64(len(body1)))
		if b := digestOf(t, h, path1, "", body1, -1); a != b {
			t.Fatal("a chunked body is another")
		}
		b := digestOf(t, h, path2, "", body2, int64(len(body2)))
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
		h := fuzzHandler(BodyAuto)
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
		a := digestOf(t, h, "/", form, []byte(text), int64(len(text)))
		again := encode(pairs)
		if b := digestOf(t, h, "/", form, []byte(again), -1); a != b {
			t.Fatalf("%q and %q differ", text, again)
		}
		if b, c := digestOf(t, h, "/?"+text, "", nil, 0), digestOf(t, h, "/?"+again, "", nil, 0); b != c {
			t.Fatalf("the queries %q and %q differ", text, again)
		}
		slices.Reverse(pairs)
		stable := slices.Clone(pairs)
		slices.SortStableFunc(stable, func(x, y pair) int { return strings.Compare(x.name, y.name) })
		original, _ := parsePairs(text)
		reversed := encode(pairs)
		b := digestOf(t, h, "/", form, []byte(reversed), -1)
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
		h := fuzzHandler(BodyAuto)
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
		digest := func(boundary string, parts ...[]byte) semel.Fingerprint {
			media, body := encode(boundary, parts...)
			return digestOf(t, h, "/", media, body, int64(len(body)))
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
