package semelhttp

import (
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/semelhq/semel"
)

// The cost of a part doesn't make a body expensive.
func TestManyPartsCostLittle(t *testing.T) {
	digest := func(parts int, boundary string) (fp semel.Fingerprint, allocated uint64) {
		t.Helper()
		body := strings.Repeat("--"+boundary+"\r\n\r\n\r\n", parts) + "--" + boundary + "--\r\n"
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
		sc := new(scratch)
		defer sc.spool.discard()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fp, err := fuzzHandler(BodyAuto).take(r, sc)
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
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
