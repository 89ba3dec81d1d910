package semelhttp_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store"
)

func compressed(w io.WriteCloser, b *bytes.Buffer, text string) string {
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// gzipAt is a text compressed at a time, which is in the head of what comes out.
func gzipAt(sec int64, text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.ModTime = time.Unix(sec, 0)
	return compressed(z, &b, text)
}

func zlibOf(text string) string {
	var b bytes.Buffer
	return compressed(zlib.NewWriter(&b), &b, text)
}

func bareOf(text string) string {
	var b bytes.Buffer
	z, _ := flate.NewWriter(&b, flate.BestSpeed)
	return compressed(z, &b, text)
}

// random is a JSON text that can't be compressed by much.
func random(bytes int) string {
	b := make([]byte, bytes/2)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return `{"a":"` + hex.EncodeToString(b) + `"}`
}

// TestACompressedBodyIsWhatItDecodesTo: compressed at any time, in any way or not at all, it is
// the same payload, and the handler gets the bytes that came.
func TestACompressedBodyIsWhatItDecodesTo(t *testing.T) {
	parts := "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n%s\r\n--b--\r\n"
	for name, c := range map[string]struct{ contentType, body, other string }{
		"JSON": {inJSON, `{"a":1,"b":2}`, `{"a":1,"b":3}`}, "large JSON": {inJSON, `{"a":"` + strings.Repeat("xyz", 60<<10) + `"}`, `{"a":"` + strings.Repeat("xyz", 61<<10) + `"}`},
		"JSON that stays large": {inJSON, random(300 << 10), random(301 << 10)},
		"a form":                {inForm, "a=1&b=2", "a=1&b=3"}, "a large form": {inForm, "a=" + strings.Repeat("xyz", 60<<10), "a=" + strings.Repeat("xyz", 61<<10)},
		"parts":       {"multipart/form-data; boundary=b", fmt.Sprintf(parts, "1"), fmt.Sprintf(parts, "2")},
		"large parts": {"multipart/form-data; boundary=b", fmt.Sprintf(parts, strings.Repeat("xyz", 60<<10)), fmt.Sprintf(parts, strings.Repeat("xyz", 61<<10))},
		"bytes":       {"application/octet-stream", "xyz", "xyy"}, "many bytes": {"", strings.Repeat("xyz", 60<<10), strings.Repeat("xyz", 61<<10)},
		"nothing": {inJSON, "", "x"}, "broken JSON": {inJSON, "{", "{{"}, "as much as is kept in memory": {"", random(64<<10 - 8), random(64 << 10)},
	} {
		ways := []struct{ body, coding string }{
			{gzipAt(1764000000, c.body), "gzip"}, {c.body, ""}, {gzipAt(1764000001, c.body), "GZIP"}, {gzipAt(0, c.body), "x-gzip"}, {zlibOf(c.body), "deflate"}, {bareOf(c.body), "deflate"}, {c.body, "identity"},
		}
		for first := range ways {
			s := newSelecting(t, semelhttp.Route{})
			send := func(body, coding string) (int, string) {
				headers := []string{"Idempotency-Key: k"}
				if coding != "" {
					headers = append(headers, "Content-Encoding: "+coding)
				}
				return s.send("", c.contentType, body, headers...)
			}
			want := fmt.Sprintf("1:%d", len(ways[first].body))
			if _, got := send(ways[first].body, ways[first].coding); got != want {
				t.Fatalf("%s: the handler got %s, not all that came: %s", name, got, want)
			}
			for n, w := range ways {
				if status, got := send(w.body, w.coding); status != 200 || got != want {
					t.Errorf("%s: way %d after way %d: %d %.80s", name, n, first, status, got)
				}
			}
			for n, body := range []string{c.other, gzipAt(0, c.other), zlibOf(c.other)} {
				if status, _ := send(body, []string{"", "gzip", "deflate"}[n]); status != http.StatusUnprocessableEntity {
					t.Errorf("%s: another payload, way %d: %d", name, n, status)
				}
			}
			if s.runs != 1 {
				t.Errorf("%s: %d runs", name, s.runs)
			}
		}
	}
}

// TestACompressedBodyThatCountsAsItCame: where two programs could decode it in two ways, or it
// is too much, the bytes are what is compared.
func TestACompressedBodyThatCountsAsItCame(t *testing.T) {
	const text = `{"a":1}`
	most := int64(200 << 10)
	cut := func(s string) string { return s[:len(s)-1] }
	long := `{"a":"` + strings.Repeat("xyz", 70<<10) + `"}`
	for name, c := range map[string]struct{ one, two, coding string }{
		"with a tail":          {gzipAt(1, text) + "x", gzipAt(2, text) + "x", "gzip"},
		"in two members":       {gzipAt(1, `{"a":`) + gzipAt(1, "1}"), gzipAt(2, `{"a":`) + gzipAt(2, "1}"), "gzip"},
		"that breaks off":      {cut(gzipAt(1, text)), cut(gzipAt(2, text)), "gzip"},
		"of another coding":    {gzipAt(1, text), gzipAt(2, text), "br"},
		"of two codings":       {gzipAt(1, text), gzipAt(2, text), "gzip, gzip"},
		"that isn't one":       {text, " " + text, "gzip"},
		"longer than max_body": {gzipAt(1, long), gzipAt(2, long), "gzip"},
	} {
		s := newSelecting(t, semelhttp.Route{MaxBody: most})
		send := func(body string) int {
			status, _ := s.send("", inJSON, body, "Idempotency-Key: k", "Content-Encoding: "+c.coding)
			return status
		}
		if a, b, other := send(c.one), send(c.one), send(c.two); a != 200 || b != 200 || other != 422 || s.runs != 1 {
			t.Errorf("%s: %d, then %d, other bytes %d, %d runs", name, a, b, other, s.runs)
		}
	}
}

// TestABombTakesLittle: what a small body decodes to takes neither memory nor disk, and isn't
// read to its end.
func TestABombTakesLittle(t *testing.T) {
	bomb := gzipAt(1, strings.Repeat("0", 256<<20))
	s := newSelecting(t, semelhttp.Route{MaxBody: 1 << 20})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if status, got := s.send("", inJSON, bomb, "Idempotency-Key: k", "Content-Encoding: gzip"); status != 200 {
		t.Fatal(status, got)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("it took %d bytes", took)
	}
}

// rewrite gives the one record another fingerprint, as a version before would have made it.
func (s *selecting) rewrite(fingerprint string) {
	s.t.Helper()
	page, err := s.store.Search(s.t.Context(), store.Query{})
	if err != nil || len(page.Records) != 1 {
		s.t.Fatal(page, err)
	}
	rec := page.Records[0]
	expect := rec.Revision
	rec.Revision[0]++
	if err := rec.Fingerprint.UnmarshalText([]byte(fingerprint)); err != nil {
		s.t.Fatal(err)
	}
	if _, applied, err := s.store.Apply(s.t.Context(), store.Write{Record: &rec, Expect: expect}); !applied || err != nil {
		s.t.Fatal(applied, err)
	}
}

// TestRecordsOfEarlierVersions are compared in the way that their own fingerprints were made.
func TestRecordsOfEarlierVersions(t *testing.T) {
	packed, err := hex.DecodeString("1f8b08000081246900ffaa56ca4c49cd2dc82f49cd4bae8ccf4ead54b252ca56d2514acccd2fcd2b51b232ac05040000ffffe2da3b4722000000")
	if err != nil {
		t.Fatal(err)
	}
	whole := `{"idempotency_key":"k", "amount":1}`
	inBody := []string{"json:/idempotency_key"}
	keyed := []string{"Idempotency-Key: k"}
	const cart = `{"lines":[{"variant":"A","quantity":1,"price":5}],"user":7,"note":"n"}`
	ofCart := semelhttp.KeyTemplate{Template: "order:{cart_hash}:{user_id}", Values: map[string]string{"cart_hash": "cart:/lines", "user_id": "json:/user"}}
	for name, c := range map[string]struct {
		rt                 semelhttp.Route
		target, kind, body string
		headers            []string
		stored             string
	}{
		"gzip as it came":                    {semelhttp.Route{}, "", inJSON, string(packed), append(keyed, "Content-Encoding: gzip"), "1:e2590202859780624969b769d44fbdeb9e49cf42df158959dd982b86353bc4d7"},
		"gzip of bytes":                      {semelhttp.Route{}, "", "application/octet-stream", string(packed), append(keyed, "Content-Encoding: gzip"), "1:e2590202859780624969b769d44fbdeb9e49cf42df158959dd982b86353bc4d7"},
		"a body that says it is as it is":    {semelhttp.Route{}, "", inJSON, `{"amount": 1}`, append(keyed, "Content-Encoding: identity"), "1:12b0e5c1f42e68ec12248193c2f87b91cc081fdb7fd74bca7b3ddf8c19e82e91"},
		"JSON with its key":                  {semelhttp.Route{KeyFrom: inBody}, "", inJSON, whole, nil, "2:e528577d2e994c104473d239b6695883441c9c1eec4e36f0b6806c699ed417b3"},
		"parts of JSON with its key":         {semelhttp.Route{KeyFrom: inBody, FingerprintIgnore: []string{"/x"}}, "", inJSON, whole, nil, "2:302933498a74c42b3e540ea5a547e274b09d935071e0d4b12303870df92197ac"},
		"JSON with what its key was made of": {semelhttp.Route{KeyTemplate: semelhttp.KeyTemplate{Template: "{order_id}", Values: map[string]string{"order_id": inBody[0]}}}, "", inJSON, whole, nil, "2:e528577d2e994c104473d239b6695883441c9c1eec4e36f0b6806c699ed417b3"},
		"a cart that its key was made of":    {semelhttp.Route{KeyTemplate: ofCart}, "", inJSON, cart, nil, "2:b3a47f25785a5c4df4c7fd20940365540ba024918f7f9d98f3781fe311eef525"},
		"the same beside another key":        {semelhttp.Route{KeyFrom: inBody, KeyTemplate: ofCart}, "", inJSON, cart, nil, "34:b3a47f25785a5c4df4c7fd20940365540ba024918f7f9d98f3781fe311eef525"},
		"parts of the same":                  {semelhttp.Route{KeyTemplate: ofCart, FingerprintIgnore: []string{"/x"}}, "", inJSON, cart, nil, "2:14a0e6300d89ee7aaea615d1346deb9b55ad53ac4ce1dbce13f7f994c7d7bb7e"},
		"a form with its key":                {semelhttp.Route{KeyFrom: []string{"form:key"}}, "", inForm, "key=k&amount=1", nil, "3:d9a1c1af7beb9d49989e098b57806931bfcfc563b2f9f74c52d4d32978a76819"},
		"a query with its key":               {semelhttp.Route{KeyFrom: []string{"query:key"}}, "?key=k&x=1", "text/plain", "x", nil, "1:38dbcd154aceca1a8f35773d374be39061138b9ca3e7efdc39eab6fd5c41775a"},
		"nothing but a query":                {semelhttp.Route{KeyFrom: []string{"query:key"}}, "?key=k&x=1", "", "", nil, "1:020118a85f0f668b577de67d87c6c2785e3f28b90a9f71d0061e434061710c60"},
		"a header with its key":              {semelhttp.Route{KeyFrom: []string{"header:X-Key"}, FingerprintHeaders: []string{"X-Key"}}, "", "text/plain", "x", []string{"X-Key: k"}, "1:bd0297fb6287a5316df91cc39f673f3894422fab32ed2987d2a8421abc5bd289"},
		"gzip with its key in a query":       {semelhttp.Route{KeyFrom: []string{"query:key"}}, "?key=k&x=1", "text/plain", "x", []string{"Content-Encoding: identity"}, "1:38dbcd154aceca1a8f35773d374be39061138b9ca3e7efdc39eab6fd5c41775a"},
	} {
		s := newSelecting(t, c.rt)
		if status, got := s.send(c.target, c.kind, c.body, c.headers...); status != 200 {
			t.Fatal(name, status, got)
		}
		s.rewrite(c.stored)
		if status, got := s.send(c.target, c.kind, c.body, c.headers...); status != 200 || s.runs != 1 {
			t.Errorf("%s: the same request: %d %s", name, status, got)
		}
		s.rewrite(strings.ReplaceAll(c.stored, "e", "d"))
		if status, _ := s.send(c.target, c.kind, c.body, c.headers...); status != 422 {
			t.Errorf("%s: another payload's fingerprint: %d", name, status)
		}
	}
}

// fingerprints are those of all records, by key.
func (s *selecting) fingerprints() map[string]semel.Fingerprint {
	s.t.Helper()
	page, err := s.store.Search(s.t.Context(), store.Query{})
	if err != nil {
		s.t.Fatal(err)
	}
	found := map[string]semel.Fingerprint{}
	for _, rec := range page.Records {
		found[rec.ID.Key] = rec.Fingerprint
	}
	return found
}

// TestTheKeyIsNoPartOfThePayload: the same payload under another key has the same fingerprint,
// wherever the key is, and another payload has another.
func TestTheKeyIsNoPartOfThePayload(t *testing.T) {
	from := []string{"header:X-Key", "json:/m/key", "form:key", "query:key"}
	template := func(text, from string) semelhttp.KeyTemplate {
		return semelhttp.KeyTemplate{Template: text, Values: map[string]string{"order_id": from}}
	}
	for name, c := range map[string]struct {
		rt                 semelhttp.Route
		target, kind, body string // with KEY where the key is, and 1 in the payload
		header             string
		apart              bool // the key counts
	}{
		"JSON":                        {rt: semelhttp.Route{KeyFrom: from}, kind: inJSON, body: `{"m":{"key":"KEY"},"a":1}`},
		"an element of JSON":          {rt: semelhttp.Route{KeyFrom: []string{"json:/1"}}, kind: inJSON, body: `[1,"KEY",3]`},
		"all but some of JSON":        {rt: semelhttp.Route{KeyFrom: from, FingerprintIgnore: []string{"/m/x"}}, kind: inJSON, body: `{"m":{"key":"KEY","x":5},"a":1}`},
		"some of JSON":                {rt: semelhttp.Route{KeyFrom: from, FingerprintOnly: []string{"/m", "/a"}}, kind: inJSON, body: `{"m":{"key":"KEY"},"a":1}`},
		"a form":                      {rt: semelhttp.Route{KeyFrom: from}, kind: inForm, body: "a=1&key=KEY"},
		"a query":                     {rt: semelhttp.Route{KeyFrom: from}, target: "?a=1&key=KEY", kind: "text/plain", body: "x"},
		"a query without a body":      {rt: semelhttp.Route{KeyFrom: from}, target: "?a=1&key=KEY"},
		"a header that is compared":   {rt: semelhttp.Route{KeyFrom: from, FingerprintHeaders: []string{"x-key"}}, kind: inJSON, body: `{"a":1}`, header: "X-Key: KEY"},
		"a header and JSON":           {rt: semelhttp.Route{KeyFrom: from}, kind: inJSON, body: `{"m":{"key":"KEY"},"a":1}`, header: "X-Key: \"KEY\""},
		"a value that is the key":     {rt: semelhttp.Route{KeyTemplate: template("{order_id}", "json:/m/key")}, kind: inJSON, body: `{"m":{"key":"KEY"},"a":1}`},
		"a value that is in the key":  {rt: semelhttp.Route{KeyTemplate: template("order:{order_id}", "json:/m/key")}, kind: inJSON, body: `{"m":{"key":"KEY"},"a":1}`, apart: true},
		"the digest of what is there": {rt: semelhttp.Route{KeyTemplate: template("{order_id}", "hash:/m/key")}, kind: inJSON, body: `{"m":{"key":"KEY"},"a":1}`, apart: true},
		"bytes":                       {rt: semelhttp.Route{KeyFrom: from, Body: semelhttp.BodyRaw}, kind: inJSON, body: `{"m":{"key":"KEY"},"a":1}`, apart: true},
	} {
		s := newSelecting(t, c.rt)
		send := func(key, one string) int {
			t.Helper()
			fill := strings.NewReplacer("KEY", key, "1", one).Replace
			var headers []string
			if c.header != "" {
				headers = []string{fill(c.header)}
			}
			status, got := s.send(fill(c.target), c.kind, fill(c.body), headers...)
			if status != 200 && status != 422 {
				t.Fatal(name, status, got)
			}
			return status
		}
		send("pay-a", "1")
		send("pay-b", "1")
		send("pay-c", "2")
		found := s.fingerprints()
		prints := map[semel.Fingerprint]bool{}
		for _, fp := range found {
			prints[fp] = true
		}
		if want := map[bool]int{false: 2, true: 3}[c.apart]; len(found) != 3 || len(prints) != want {
			t.Errorf("%s: %d fingerprints of two payloads under three keys, want %d: %v", name, len(prints), want, found)
		}
		if again, other := send("pay-a", "1"), send("pay-a", "2"); again != 200 || other != 422 {
			t.Errorf("%s: again %d, another payload %d", name, again, other)
		}
	}

	// Wherever the key of a route was, the payload is the same; and what isn't the key counts.
	s := newSelecting(t, semelhttp.Route{KeyFrom: from})
	for _, body := range []string{`{"a":1}`, `{"m":{},"a":1}`, `{"m":{"key":null},"a":1}`, `{"m":{"key":""},"a":1}`} {
		s.send("", inJSON, body, "X-Key: "+hex.EncodeToString([]byte(body)))
	}
	s.send("", inJSON, `{"m":{"key":"in-body"},"a":1}`)
	found := s.fingerprints()
	if found["in-body"] != found[hex.EncodeToString([]byte(`{"m":{},"a":1}`))] {
		t.Errorf("a key in a header makes another payload: %v", found)
	}
	prints := map[semel.Fingerprint]bool{}
	for _, fp := range found {
		prints[fp] = true
	}
	if len(prints) != 4 {
		t.Errorf("%d payloads, want 4: %v", len(prints), found)
	}
	// A key by another way than the template: then its value is a part of the payload.
	both := newSelecting(t, semelhttp.Route{KeyFrom: []string{"header:X-Key"}, KeyTemplate: template("{order_id}", "json:/id")})
	both.send("", inJSON, `{"id":"1"}`, "X-Key: k")
	if status, _ := both.send("", inJSON, `{"id":"2"}`, "X-Key: k"); status != 422 {
		t.Errorf("what isn't the key doesn't count: %d", status)
	}
}

// TestAnInspectorSeesThePayload as the guard does.
func TestAnInspectorSeesThePayload(t *testing.T) {
	rt := semelhttp.Route{KeyFrom: []string{"json:/key"}, Operation: semel.Operation{Name: "pay"}, Anonymous: semelhttp.AnonymousShare}
	e := newEngine(t, nil)
	g := newGuard(t, e, nil)
	i, err := g.Inspect(rt)
	if err != nil {
		t.Fatal(err)
	}
	h := g.Handler(rt, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for n, pad := range []int{1, 100 << 10} {
		body := gzipAt(1, fmt.Sprintf(`{"key":"k%d","pad":%q}`, n, strings.Repeat("xyz", pad)))
		r := httptest.NewRequest("POST", "/pay", strings.NewReader(body))
		r.Header.Set("Content-Encoding", "gzip")
		r.Header.Set("Content-Type", inJSON)
		h.ServeHTTP(httptest.NewRecorder(), r)
		got, code := i.ID(r, []byte(body))
		rec, err := e.Lookup(t.Context(), got.ID)
		if code != "" || err != nil || rec.Fingerprint != i.Fingerprint(r, []byte(body)) {
			t.Errorf("%d: %s, %v: recorded %s", n, code, err, rec.Fingerprint)
		}
	}
}
