package semelproxy

import (
	"bufio"
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store/memstore"
)

func fuzzProxy(f *testing.F) *Proxy {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		f.Fatal(err)
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		f.Fatal(err)
	}
	p, err := New(guard, Options{
		Upstream: &url.URL{Scheme: "http", Host: "upstream"}, TenantHeader: "X-Tenant", EffectHeader: "X-Effect-Key",
		Route:          semelhttp.Route{Operation: semel.Operation{Name: "op"}},
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	if err != nil {
		f.Fatal(err)
	}
	return p
}

// fromNet reports whether package net writes an address in this way. The zone of an address
// is the name of an interface, which no bracket, colon or sign occurs in.
func fromNet(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	if err != nil || at.String() != remote && !at.Addr().Is4In6() {
		return false
	}
	return !strings.ContainsFunc(at.Addr().Zone(), func(r rune) bool {
		return r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// FuzzForwarding: whatever a header is called, no client tells the upstream what
// only proxies may, and a trusted proxy's word is kept.
func FuzzForwarding(f *testing.F) {
	p := fuzzProxy(f)
	for _, name := range []string{"X-Forwarded-For", "x_forwarded_for", "Forwarded", "X_Tenant", "X-Effect_Key", "X-Fine", "Host", "Idempotency_Key"} {
		f.Add(name, "6.6.6.6", "192.0.2.1:1")
		f.Add(name, "for=6.6.6.6", "10.1.2.3:1")
		f.Add(name, "6.6.6.6", "[::ffff:10.0.0.1%eth0]:1")
	}
	f.Add("X-Forwarded-For", "6.6.6.6", "[::ffff:10.0.0.0%]]:0") // which net never makes
	f.Fuzz(func(t *testing.T, name, value, remote string) {
		if !fromNet(remote) {
			return // the server says where a request came from
		}
		in := httptest.NewRequest("POST", "http://shop.example/pay", nil)
		in.RemoteAddr = remote
		in.Header[http.CanonicalHeaderKey(name)] = []string{value}
		out := in.Clone(t.Context())
		for _, gone := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
			delete(out.Header, gone) // as ReverseProxy does
		}
		p.rewrite(&httputil.ProxyRequest{In: in, Out: out})
		trusted := netip.MustParsePrefix("10.0.0.0/8").Contains(netip.MustParseAddrPort(remote).Addr().Unmap().WithZone(""))
		for got, values := range out.Header {
			plain := http.CanonicalHeaderKey(strings.ReplaceAll(got, "_", "-"))
			if plain != got && (p.protected[plain] || p.owned[plain]) || p.owned[got] {
				t.Fatalf("%q arrived as %q", name, got)
			}
			made := got == "X-Forwarded-Host" || got == "X-Forwarded-Proto" || got == "X-Forwarded-For"
			for _, f := range forwarding {
				if got == f && !trusted && (!made || got == "X-Forwarded-For" && strings.Contains(values[0], ",")) {
					t.Fatalf("%s arrived as %q from %s", got, values, remote)
				}
			}
		}
		if trusted && http.CanonicalHeaderKey(name) == "X-Forwarded-For" && !strings.HasPrefix(out.Header.Get("X-Forwarded-For"), value) {
			t.Fatalf("what %s said is lost: %q", remote, out.Header)
		}
	})
}

// FuzzHTTP2Fields: a request that came over HTTP/2, whose fields may have what
// HTTP/1.1 has not, is refused or becomes one request with the same target.
func FuzzHTTP2Fields(f *testing.F) {
	p := fuzzProxy(f)
	for _, target := range []string{"/p", "/p?a HTTP/1.1", "/p?a\r\nX: y", "//p", "/a/../b", "/p?%20", "/p?a;b", "*"} {
		f.Add("POST", target, "h2c", "Upgrade, HTTP2-Settings")
		f.Add("post", target, "", "close")
		f.Add("", target, "", "")
	}
	f.Fuzz(func(t *testing.T, method, target, upgrade, connection string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || target[0] != '/' && target != "*" {
			return // net/http refuses it
		}
		if _, err := http.NewRequest(method, "http://a/", nil); err != nil || method == "" {
			return // nor has it a request without a method, which it would send as GET
		}
		r := &http.Request{
			Method: method, URL: u, RequestURI: target, Host: "a", Proto: "HTTP/2.0", ProtoMajor: 2,
			Header: http.Header{"Upgrade": {upgrade}, "Connection": {connection}},
		}
		r, _, refused := p.judge(r, ModeOff)
		if refused != nil {
			return
		}
		for _, offer := range tokens(r.Header["Upgrade"]) {
			if strings.EqualFold(offer, "h2c") {
				t.Fatalf("h2c is still offered: %q", r.Header)
			}
		}
		out := r.Clone(t.Context())
		out.Header = http.Header{}
		p.rewrite(&httputil.ProxyRequest{In: r, Out: out})
		var wire bytes.Buffer
		if err := out.Write(&wire); err != nil {
			return // nothing leaves
		}
		in := bufio.NewReader(&wire)
		got, err := http.ReadRequest(in)
		if err != nil || got.Method != method || got.URL.RawQuery != u.RawQuery || in.Buffered() != 0 {
			t.Fatalf("%s %q became %+v, %v", method, target, got, err)
		}
	})
}
