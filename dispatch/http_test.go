package dispatch

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"crypto/hmac"
	"crypto/sha256"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// provider is a receiver of webhooks that misbehaves in one way.
type provider struct {
	*httptest.Server
	requests atomic.Int64
	effects  atomic.Int64
}

func newProvider(t *testing.T, serve func(p *provider, w http.ResponseWriter, r *http.Request)) *provider {
	t.Helper()
	p := &provider{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		serve(p, w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// reset ends the connection of a request without an answer, or with part of one.
func reset(w http.ResponseWriter, part string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(conn, part)
	if c, ok := conn.(*net.TCPConn); ok && part == "" {
		_ = c.SetLinger(0) // a reset and no orderly end
	}
	_ = conn.Close()
}

func jsonAnswer(_ *http.Response, body []byte) error {
	if string(body) != `{"ok":true}` {
		return errors.New("the answer is not what was agreed on")
	}
	return nil
}

func TestProviders(t *testing.T) {
	status := func(code int, header ...string) func(*provider, http.ResponseWriter, *http.Request) {
		return func(_ *provider, w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
		}
	}
	const taken, again = "taken", "again"
	for _, c := range []struct {
		name  string
		serve func(p *provider, w http.ResponseWriter, r *http.Request)
		check func(*http.Response, []byte) error
		want  string // taken, again, or the code of a park
		after time.Duration
	}{
		{name: "200", serve: status(200), want: taken},
		{name: "204", serve: status(204), want: taken},
		{name: "202 and a body that ends too soon", serve: func(_ *provider, w http.ResponseWriter, _ *http.Request) {
			reset(w, "HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\nok")
		}, want: taken},
		{name: "200 and the agreed body", serve: func(_ *provider, w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"ok":true}`)
		}, check: jsonAnswer, want: taken},
		{name: "200 and a wrong body", serve: func(_ *provider, w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<html>welcome</html>")
		}, check: jsonAnswer, want: again},
		{name: "200 and half of the agreed body", serve: func(_ *provider, w http.ResponseWriter, _ *http.Request) {
			reset(w, "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"ok\"")
		}, check: jsonAnswer, want: again},
		{name: "200 and a body without end", serve: func(_ *provider, w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		}, check: jsonAnswer, want: again},
		{name: "200 and a body without end that nobody looks at", serve: func(_ *provider, w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		}, want: taken},
		{name: "500 after the effect", serve: func(p *provider, w http.ResponseWriter, _ *http.Request) {
			p.effects.Add(1)
			w.WriteHeader(500)
		}, want: again},
		{name: "503 that says when", serve: status(503, "Retry-After", "120"), want: again, after: 2 * time.Minute},
		{name: "429 that says when", serve: status(429, "Retry-After", "7"), want: again, after: 7 * time.Second},
		{name: "429 that says nothing", serve: status(429), want: again},
		{name: "429 that asks for a year", serve: status(429, "Retry-After", "31536000"), want: again, after: maxRetryAfter},
		{name: "429 that says nonsense", serve: status(429, "Retry-After", "-5 soon"), want: again},
		{name: "408", serve: status(408), want: again},
		{name: "409 while the first delivery runs", serve: status(409), want: again},
		{name: "400", serve: status(400), want: "status_400"},
		{name: "401", serve: status(401), want: again},
		{name: "504", serve: status(504), want: again},
		{name: "422 that says that nothing was done", serve: status(422, "Semel-Effect", "none"), want: again},
		{name: "200 that says that something may have been done", serve: status(200, "Semel-Effect", "unknown"), want: again},
		{name: "404", serve: status(404), want: "status_404"},
		{name: "410", serve: status(410), want: "status_410"},
		{name: "422", serve: status(422), want: "status_422"},
		{name: "a redirect that keeps the method", serve: status(307, "Location", "/elsewhere"), want: again},
		{name: "a redirect that changes it", serve: status(302, "Location", "/elsewhere"), want: again},
		{name: "a reset before the answer", serve: func(_ *provider, w http.ResponseWriter, _ *http.Request) { reset(w, "") }, want: again},
		{name: "an answer that is not HTTP", serve: func(_ *provider, w http.ResponseWriter, _ *http.Request) { reset(w, "hello\r\n\r\n") }, want: again},
		{name: "too slow", serve: func(_ *provider, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, want: again},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProvider(t, c.serve)
			s, err := HTTP(HTTPOptions{URL: p.URL + "/hook", Check: c.check, AllowPrivate: true})
			must(t, err)
			// A connection that was used before is the one on which requests are
			// sent again behind one's back.
			limit := 5 * time.Second
			if c.name == "too slow" {
				limit = 100 * time.Millisecond
			}
			for n := range int64(2) {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				err = s.Deliver(ctx, Delivery{Message: &semel.Message{ID: "msg_1", Payload: []byte("{}"), ContentType: "application/json"}, Try: 1})
				cancel()
				if got := p.requests.Load(); got != n+1 {
					t.Fatalf("%d requests in %d tries", got, n+1)
				}
				v, _ := errors.AsType[*verdict](err)
				got, after := again, time.Duration(0)
				switch {
				case err == nil:
					got = taken
				case v != nil:
					after = v.after
					if v.code != "" {
						got = v.code
					}
				}
				if got != c.want || after != c.after {
					t.Fatalf("%s after %v, want %s after %v: %v", got, after, c.want, c.after, err)
				}
			}
		})
	}
	t.Run("the receiver's words are in the failure, a gateway's aren't", func(t *testing.T) {
		for status, want := range map[int]string{422: "status 422: unknown customer 17 (no_customer)", 500: "status 500: unknown customer 17 (no_customer)", 504: "status 504"} {
			p := newProvider(t, func(_ *provider, w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, `{"error":{"code":"no_customer","message":"unknown customer 17"}}`)
			})
			s, err := HTTP(HTTPOptions{URL: p.URL, AllowPrivate: true})
			must(t, err)
			if err = s.Deliver(t.Context(), Delivery{Message: &semel.Message{ID: "msg_1"}}); err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
	t.Run("a receiver that fails after the effect sees the same id again", func(t *testing.T) {
		ids := make(chan string, 10)
		p := newProvider(t, func(p *provider, w http.ResponseWriter, r *http.Request) {
			ids <- r.Header.Get("webhook-id")
			if p.effects.Add(1) == 1 {
				w.WriteHeader(500)
			}
		})
		s, err := HTTP(HTTPOptions{URL: p.URL, AllowPrivate: true})
		must(t, err)
		st := memstore.New()
		n := start(t, st, "one", Options{
			Interval:     10 * time.Millisecond,
			Destinations: map[string]Destination{"hook": {Sender: s, MinBackoff: time.Millisecond}},
		})
		id := complete(t, n.engine, "k", message("a", ""))
		eventually(t, 10*time.Second, "the message is delivered", func() bool { return state(t, st, id).State == store.MessageDelivered })
		first, second := <-ids, <-ids
		if m := state(t, st, id); first != m.ID || second != m.ID || p.effects.Load() != 2 {
			t.Fatal(first, second, m.ID, p.effects.Load())
		}
	})
	t.Run("nobody is there", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		url := "http://" + ln.Addr().String()
		must(t, ln.Close())
		s, err := HTTP(HTTPOptions{URL: url, AllowPrivate: true})
		must(t, err)
		err = s.Deliver(t.Context(), Delivery{Message: &semel.Message{ID: "msg_1"}})
		if v, ok := errors.AsType[*verdict](err); err == nil || ok {
			t.Fatal(err, v)
		}
	})
}

// TestSignature has the vector of Standard Webhooks.
// TestHTTPAsPartOfASender is what a sender needs that brings headers of its own, and has to
// know what a failed try may have done.
func TestHTTPAsPartOfASender(t *testing.T) {
	var got http.Header
	p := newProvider(t, func(p *provider, w http.ResponseWriter, r *http.Request) {
		if got = r.Header; p.requests.Load() > 1 {
			reset(w, "")
		}
	})
	deliver := func(ctx context.Context, url string, private bool) error {
		s, err := HTTP(HTTPOptions{URL: url, AllowPrivate: private})
		if err != nil {
			t.Fatal(err)
		}
		return s.Deliver(ctx, Delivery{Message: &semel.Message{ID: "m"}, Header: http.Header{"X-Kind": {"a"}, "Webhook-Id": {"another"}}})
	}
	if err := deliver(t.Context(), p.URL, true); err != nil || got.Get("X-Kind") != "a" || got.Get("Webhook-Id") != "m" {
		t.Errorf("%v, %v", got, err)
	}
	if err := deliver(t.Context(), p.URL, true); FindingOf(err).Verdict != judge.Unknown {
		t.Errorf("a connection that broke off: %v", err)
	}
	if err := deliver(t.Context(), p.URL, false); FindingOf(err).Verdict != judge.Aborted {
		t.Errorf("an address that is refused: %v", err)
	}
	p.Close()
	if err := deliver(t.Context(), p.URL, true); FindingOf(err).Verdict != judge.Aborted {
		t.Errorf("nobody listens: %v", err)
	}
	if FindingOf(errors.New("status 400")).Verdict != judge.Unknown {
		t.Error("an error of somebody else proves something")
	}
}

func TestSignature(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	body := []byte(`{"test": 2432232314}`)
	s, err := newSigner([]string{secret})
	must(t, err)
	h := http.Header{}
	sent := &Delivery{
		Message: &semel.Message{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", Payload: body},
		Call:    semel.ID{Tenant: "a.b c/é", Operation: "pay@2"},
	}
	s.sign(h, sent, time.Unix(1614265330, 0))
	if got := h.Get("webhook-signature"); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Fatal(got)
	}
	t.Run("there is one for each secret", func(t *testing.T) {
		other := secretPrefix + base64.StdEncoding.EncodeToString(make([]byte, 32))
		both, err := newSigner([]string{other, secret})
		must(t, err)
		g := http.Header{}
		both.sign(g, sent, time.Unix(1614265330, 0))
		parts := strings.Fields(g.Get("webhook-signature"))
		if len(parts) != 2 || parts[1] != h.Get("webhook-signature") || parts[0] == parts[1] {
			t.Fatal(parts)
		}
	})
	t.Run("whose call sent it is signed too", func(t *testing.T) {
		if h.Get("semel-tenant") != "a%2Eb%20c%2F%C3%A9" || h.Get("semel-operation") != "pay%402" {
			t.Error(h)
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
		must(t, err)
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "semel-1.%s.1614265330.%s.%s.%s", sent.Message.ID, h.Get("semel-tenant"), h.Get("semel-operation"), body)
		want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		if got := h.Get("semel-signature"); got != want || got == h.Get("webhook-signature") {
			t.Errorf("got %s, want %s", got, want)
		}
		for _, other := range []semel.ID{{Tenant: "other", Operation: "pay@2"}, {Tenant: "a.b c/é", Operation: "pay"}, {Tenant: "a", Operation: "b c/é.pay@2"}} {
			g := http.Header{}
			s.sign(g, &Delivery{Message: sent.Message, Call: other}, time.Unix(1614265330, 0))
			if g.Get("semel-signature") == want || g.Get("webhook-signature") != h.Get("webhook-signature") {
				t.Errorf("%v has the same signature", other)
			}
		}
		if none := (http.Header{}); true {
			signer(nil).sign(none, sent, time.Unix(1614265330, 0))
			if none.Get("semel-signature") != "" || none.Get("semel-tenant") == "" {
				t.Error(none)
			}
		}
	})
	t.Run("bad secrets are refused and not shown", func(t *testing.T) {
		for _, bad := range []string{"", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!!!!"} {
			if _, err := HTTP(HTTPOptions{URL: "https://example.com", Secrets: []string{bad}}); err == nil || len(bad) > len(secretPrefix) && strings.Contains(err.Error(), bad[len(secretPrefix):]) {
				t.Errorf("%q: %v", bad, err)
			}
		}
	})
	t.Run("what is sent is what was signed", func(t *testing.T) {
		got := make(chan *http.Request, 1)
		p := newProvider(t, func(_ *provider, _ http.ResponseWriter, r *http.Request) { got <- r })
		sender, err := HTTP(HTTPOptions{URL: p.URL, Secrets: []string{secret}, AllowPrivate: true, Header: http.Header{"Authorization": {"Bearer x"}}})
		must(t, err)
		must(t, sender.Deliver(t.Context(), Delivery{Message: &semel.Message{ID: "msg_1", Payload: body, ContentType: "application/json"}}))
		r := <-got
		at, err := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
		must(t, err)
		want := http.Header{}
		s.sign(want, &Delivery{Message: &semel.Message{ID: "msg_1", Payload: body}}, time.Unix(at, 0))
		if r.Header.Get("webhook-signature") != want.Get("webhook-signature") || time.Since(time.Unix(at, 0)) > time.Minute ||
			r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "Bearer x" {
			t.Fatal(r.Header)
		}
	})
}

func TestGuard(t *testing.T) {
	t.Run("a webhook to this machine is parked before anything is sent", func(t *testing.T) {
		p := newProvider(t, func(*provider, http.ResponseWriter, *http.Request) {})
		_, port, err := net.SplitHostPort(p.Listener.Addr().String())
		must(t, err)
		for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]"} {
			for _, body := range []string{"", "x"} {
				s, err := HTTP(HTTPOptions{URL: fmt.Sprintf("http://%s:%s/", host, port)})
				must(t, err)
				err = s.Deliver(t.Context(), Delivery{Message: &semel.Message{ID: "msg_1", Payload: []byte(body)}})
				if v, _ := errors.AsType[*verdict](err); v == nil || v.code != "address_refused" {
					t.Errorf("%s: %v", host, err)
				}
			}
		}
		if p.requests.Load() != 0 {
			t.Fatal("something was sent")
		}
		s, err := HTTP(HTTPOptions{URL: p.URL, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		must(t, err)
		must(t, s.Deliver(t.Context(), Delivery{Message: &semel.Message{ID: "msg_1"}}))
	})
	t.Run("URLs that are none are refused", func(t *testing.T) {
		for _, bad := range []string{"", "example.com", "ftp://example.com", "https://", "https://user:pw@example.com", "file:///etc/passwd"} {
			if _, err := HTTP(HTTPOptions{URL: bad}); err == nil {
				t.Errorf("%q was taken", bad)
			}
		}
	})
}
