package semelproxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/semelhq/semel/door/semelproxy"
)

func TestWhatATrustedProxySaysIsExtended(t *testing.T) {
	up := newUpstream(t, nil, run)
	from := []string{
		"Authorization: Bearer x", "X-Forwarded-For: 6.6.6.6, 7.7.7.7", "X-Forwarded-Proto: https", "X-Forwarded-Host: shop.example", "X-Forwarded-Port: 443",
		"Forwarded: for=6.6.6.6;proto=https", "X-Real-Ip: 6.6.6.6", "X_Forwarded_For: 8.8.8.8",
	}
	for _, c := range []struct {
		trusted string
		want    map[string]string
	}{
		{"127.0.0.0/8", map[string]string{
			"X-Forwarded-For": "6.6.6.6, 7.7.7.7, 127.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.example",
			"X-Forwarded-Port": "443", "Forwarded": "for=6.6.6.6;proto=https, for=127.0.0.1", "X-Real-Ip": "6.6.6.6", "X_forwarded_for": "",
		}},
		{"10.0.0.0/8", map[string]string{
			"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Forwarded-Port": "", "Forwarded": "", "X-Real-Ip": "", "X_forwarded_for": "",
		}},
	} {
		w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
			o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(c.trusted)}
		})
		for _, method := range []string{"POST", "GET"} {
			w.send(method, "/charges", "k1", "", from...)
			seen := up.requests()
			h := seen[len(seen)-1].Header
			for name, want := range c.want {
				if got := strings.Join(h[name], ","); got != want {
					t.Errorf("%s trusted, %s: %s is %q, want %q", c.trusted, method, name, got, want)
				}
			}
		}
	}
}

// The upstream may serve several hosts, so one key is one call at one of them.
func TestAHostDoesNotGetTheAnswerOfAnother(t *testing.T) {
	up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, n int) { _, _ = io.WriteString(w, r.Host) })
	w := newWorld(t, up.URL, nil)
	key := "k1"
	send := func(host string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "http://"+host+"/pay", strings.NewReader("one"))
		r.Header.Set("Idempotency-Key", key)
		r.Header.Set("Authorization", "Bearer x")
		got := httptest.NewRecorder()
		w.proxy.ServeHTTP(got, r)
		return got
	}
	replayed := func(host string) bool {
		got := send(host)
		return got.Code == 200 && got.Header().Get("Idempotency-Replayed") == "true"
	}
	if got := send("shop-a.example"); got.Code != 200 || got.Body.String() != "shop-a.example" {
		t.Errorf("got %d %s", got.Code, got.Body)
	}
	if got := send("shop-b.example"); got.Code != 422 {
		t.Errorf("shop-b got %d %s", got.Code, got.Body)
	}
	if !replayed("SHOP-A.example.:8480") {
		t.Error("a name that is spelled otherwise is another")
	}
	// An address names no host, so callers may turn to another node.
	key = "k2"
	send("10.0.0.1:8480")
	for _, host := range []string{"10.0.0.2:8481", "[::1]:80", "localhost:1"} {
		if !replayed(host) {
			t.Error(host + " is another host")
		}
	}
}

// Some servers take a POST with such a header for another method.
func TestAnOverriddenMethodIsAnotherRequest(t *testing.T) {
	up := newUpstream(t, nil, run)
	w := newWorld(t, up.URL, nil)
	w.send("POST", "/charges", "k1", "one").want(t, 201, "run 1")
	for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		w.send("POST", "/charges", "k1", "one", name+": DELETE").want(t, 422, "conflict")
	}
}
