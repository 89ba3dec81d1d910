package payload

import (
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/semelhq/semel/store"
)

// The cost of a part doesn't make a body expensive.
func TestManyPartsCostLittle(t *testing.T) {
	digest := func(parts int, boundary string) (fp store.Fingerprint, allocated uint64) {
		t.Helper()
		body := strings.Repeat("--"+boundary+"\r\n\r\n\r\n", parts) + "--" + boundary + "--\r\n"
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fp = take(t, ruleOf(Auto), r)
		runtime.ReadMemStats(&after)
		return fp, after.TotalAlloc - before.TotalAlloc
	}
	for _, c := range []struct {
		parts  int
		scheme string
		bytes  uint64
	}{{maxParts, "4:", 8 << 20}, {maxParts + 1, "1:", 8 << 20}, {1_000_000, "1:", 64 << 20}} {
		fp, allocated := digest(c.parts, "b")
		if !strings.HasPrefix(fp.String(), c.scheme) || allocated > c.bytes {
			t.Errorf("%d parts: it is %v, and %d bytes were allocated", c.parts, fp, allocated)
		}
		other, _ := digest(c.parts, "c")
		if same := fp == other; same != (c.parts <= maxParts) {
			t.Errorf("%d parts: with another boundary the same is %v", c.parts, same)
		}
	}
}

// TestWhatHasVeryManyPiecesIsComparedByItsBytes, because pieces cost many times their bytes.
func TestWhatHasVeryManyPiecesIsComparedByItsBytes(t *testing.T) {
	digest := func(media, body string) store.Fingerprint {
		t.Helper()
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", media)
		return take(t, ruleOf(Auto), r)
	}
	part := func(boundary string, headers int, content string) string {
		return "--" + boundary + "\r\nA:1\r\n\r\n--\r\nB: 2\r\n--" + boundary + "\r\n" + strings.Repeat("A: 1\r\n", headers) + "\r\n" + content + "\r\n--" + boundary + "--\r\n"
	}
	for _, c := range []struct {
		headers int
		content string
		same    bool
	}{
		{maxHeaders, "x", true}, {maxHeaders + 1, "x", false},
		{1, strings.Repeat("A: 1\r\n", 100), true},
		{1, strings.Repeat("long ", 10_000) + "\r\n" + strings.Repeat("A: 1\n", 100), true},
		{1, strings.Repeat(strings.Repeat("x", 5000)+"\n", 500), true}, // which is partly in a file
		{maxHeaders + 1, strings.Repeat(strings.Repeat("x", 5000)+"\n", 500), false},
	} {
		one := digest("multipart/form-data; boundary=bb", part("bb", c.headers, c.content))
		if other := digest("multipart/form-data; boundary=cc", part("cc", c.headers, c.content)); (one == other) != c.same {
			t.Errorf("%d headers and %.9q: with another boundary the same is %v", c.headers, c.content, !c.same)
		}
	}
	const form = "application/x-www-form-urlencoded"
	for pairs, same := range map[int]bool{maxPairs: true, maxPairs + 1: false} {
		some := strings.Repeat("a=1&", pairs-1)
		if digest(form, some+"b=2") == digest(form, "b=2&"+some) != same {
			t.Errorf("of %d pairs another order is the same: %v", pairs, !same)
		}
	}
	if digest(form, "a=1"+strings.Repeat("&", 2*maxPairs)+"b=2") != digest(form, "b=2&a=1") {
		t.Error("what stands between pairs counts")
	}
}
