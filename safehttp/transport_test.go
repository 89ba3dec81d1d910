package safehttp_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/safehttp"
)

// breaker is a server that answers the first request of each connection, and breaks the
// connection when it has read a second one: the effect has happened and nobody knows.
type breaker struct {
	net.Listener
	requests atomic.Int64 // unsafe ones
	lengths  sync.Map     // of bodies: Content-Length as received, "chunked", or ""
	wg       sync.WaitGroup
}

func newBreaker(t *testing.T) *breaker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &breaker{Listener: ln}
	b.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			b.wg.Go(func() { b.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		b.wg.Wait()
	})
	return b
}

func (b *breaker) serve(conn net.Conn) {
	defer conn.Close()
	br := bufio.NewReader(conn)
	for n := 1; ; n++ {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method != http.MethodGet {
			b.requests.Add(1)
			form := r.Header.Get("Content-Length")
			if len(r.TransferEncoding) > 0 {
				form = r.TransferEncoding[0]
			}
			b.lengths.Store(form, true)
		}
		if n > 1 && r.Method != http.MethodGet {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

// afterOneUse makes a client that has one used connection, and sends a POST on
// it.
func (b *breaker) afterOneUse(t *testing.T, rt http.RoundTripper, body io.Reader) error {
	t.Helper()
	client := &http.Client{Transport: rt}
	url := "http://" + b.Addr().String() + "/"
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k1")
	resp, err = client.Do(r)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func TestTransport(t *testing.T) {
	t.Run("the standard transport sends a request with a key twice", func(t *testing.T) {
		b := newBreaker(t)
		rt := &http.Transport{}
		defer rt.CloseIdleConnections()
		// The second copy arrives on its own connection, so it gets an answer.
		if err := b.afterOneUse(t, rt, strings.NewReader("charge")); err != nil {
			t.Fatal(err)
		}
		if n := b.requests.Load(); n != 2 {
			t.Fatalf("%d requests; this control should show 2", n)
		}
	})
	t.Run("the safe transport sends it once", func(t *testing.T) {
		b := newBreaker(t)
		rt := &safehttp.Transport{Base: &http.Transport{}}
		defer rt.CloseIdleConnections()
		err := b.afterOneUse(t, rt, strings.NewReader("charge"))
		if err == nil {
			t.Fatal("no error although the connection broke")
		}
		if n := b.requests.Load(); n != 1 {
			t.Fatalf("%d requests", n)
		}
		if safehttp.NothingSent(err) {
			t.Fatal("something was sent")
		}
	})
	t.Run("the standard transport sends an empty request with a key twice", func(t *testing.T) {
		b := newBreaker(t)
		rt := &http.Transport{}
		defer rt.CloseIdleConnections()
		if err := b.afterOneUse(t, rt, nil); err != nil {
			t.Fatal(err)
		}
		if n := b.requests.Load(); n != 2 {
			t.Fatalf("%d requests; this control should show 2", n)
		}
	})
	t.Run("the safe transport sends an empty request once, on and not chunked", func(t *testing.T) {
		b := newBreaker(t)
		rt := &safehttp.Transport{Base: &http.Transport{}}
		defer rt.CloseIdleConnections()
		// The GET before used the connections of Base.
		if err := b.afterOneUse(t, rt, nil); err != nil {
			t.Fatal(err)
		}
		if n := b.requests.Load(); n != 1 {
			t.Fatalf("%d requests", n)
		}
		if _, ok := b.lengths.Load("0"); !ok {
			t.Fatal("the request had no Content-Length: 0")
		}
	})
	t.Run("over another base an empty request is sent once too", func(t *testing.T) {
		b := newBreaker(t)
		std := &http.Transport{}
		defer std.CloseIdleConnections()
		rt := &safehttp.Transport{Base: roundTripFunc(std.RoundTrip)}
		if err := b.afterOneUse(t, rt, nil); err == nil {
			t.Fatal("no error although the connection broke")
		}
		if n := b.requests.Load(); n != 1 {
			t.Fatalf("%d requests", n)
		}
	})
	t.Run("an empty request over TLS does not fall into HTTP/2", func(t *testing.T) {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.Proto)
		}))
		srv.EnableHTTP2 = true
		srv.StartTLS()
		defer srv.Close()
		std := srv.Client().Transport.(*http.Transport)
		rt := &safehttp.Transport{Base: std}
		for _, c := range []struct{ body, proto string }{{"", "HTTP/1.1"}, {"charge", "HTTP/2.0"}} {
			var body io.Reader
			if c.body != "" {
				body = strings.NewReader(c.body)
			}
			resp, err := (&http.Client{Transport: rt}).Post(srv.URL, "text/plain", body)
			if err != nil {
				t.Fatal(err)
			}
			proto, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || string(proto) != c.proto {
				t.Fatalf("body %q went by %s, not %s (%v)", c.body, proto, c.proto, err)
			}
		}
	})
}

func TestNothingSent(t *testing.T) {
	post := func(t *testing.T, rt http.RoundTripper, url string) error {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("charge"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: rt}).Do(r)
		if err == nil {
			_ = resp.Body.Close()
			t.Fatal("no error")
		}
		return err
	}
	t.Run("it is proved where no connection was made", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		url := "http://" + ln.Addr().String()
		_ = ln.Close()
		if err := post(t, &safehttp.Transport{Base: &http.Transport{}}, url); !safehttp.NothingSent(err) {
			t.Fatal(err)
		}
		if err := post(t, &safehttp.Retrier{Base: &http.Transport{}, MaxAttempts: 1}, url); !safehttp.NothingSent(err) {
			t.Fatal(err)
		}
	})
	t.Run("it is proved where TLS failed", func(t *testing.T) {
		srv := httptest.NewUnstartedServer(http.NotFoundHandler())
		srv.Config.ErrorLog = log.New(io.Discard, "", 0)
		srv.StartTLS()
		defer srv.Close()
		rt := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}} // which does not trust the server
		if err := post(t, &safehttp.Transport{Base: rt}, srv.URL); !safehttp.NothingSent(err) {
			t.Fatal(err)
		}
	})
	t.Run("it is not proved where the connection broke", func(t *testing.T) {
		srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		defer srv.Close()
		rt := &http.Transport{}
		defer rt.CloseIdleConnections()
		if err := post(t, &safehttp.Transport{Base: rt}, srv.URL); safehttp.NothingSent(err) {
			t.Fatal(err)
		}
	})
	t.Run("it is not proved by an error of another kind", func(t *testing.T) {
		if safehttp.NothingSent(nil) || safehttp.NothingSent(errors.New("dial")) || safehttp.NothingSent(context.Canceled) {
			t.Fatal("proved by nothing")
		}
	})
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// refusing is a connection that breaks when something is written to it.
type refusing struct {
	net.Conn
	after int // bytes that are taken before that
}

func (c *refusing) Write(p []byte) (int, error) {
	if n := min(c.after, len(p)); n > 0 {
		c.after -= n
		return c.Conn.Write(p[:n])
	}
	return 0, errors.New("broken pipe")
}

func TestAConnectionThatTookNothingProvesThatNothingWasSent(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	for after, want := range map[int]bool{0: true, 1: false} {
		tr := &safehttp.Transport{Look: true, Base: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, addr)
				return &refusing{c, after}, err
			},
		}}
		r, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL, strings.NewReader("one"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = tr.RoundTrip(r)
		if err == nil || safehttp.NothingSent(err) != want {
			t.Errorf("after %d bytes: %v, nothing sent is %t", after, err, !want)
		}
	}
}

// All requests use the connections of one pool, over HTTP/1.1 also with TLS, once one
// request has shown that. With Fresh, requests with an effect have their own connections.
func TestConnectionsAreUsedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		start func(*httptest.Server)
		fresh bool
		conns int64
	}{
		"HTTP/1.1":                 {(*httptest.Server).Start, false, 1},
		"HTTP/1.1, fresh":          {(*httptest.Server).Start, true, 4},
		"HTTP/1.1 with TLS":        {(*httptest.Server).StartTLS, false, 2},
		"HTTP/1.1 with TLS, fresh": {(*httptest.Server).StartTLS, true, 4}, // the first is a GET's
		"HTTP/2": {func(s *httptest.Server) {
			s.EnableHTTP2 = true
			s.StartTLS()
		}, true, 2}, // one is the GETs'
	} {
		t.Run(name, func(t *testing.T) {
			var conns atomic.Int64
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
			srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					conns.Add(1)
				}
			}
			c.start(srv)
			defer srv.Close()
			base := srv.Client().Transport.(*http.Transport)
			tr := &safehttp.Transport{Base: base, Look: !c.fresh, Fresh: c.fresh}
			defer tr.CloseIdleConnections()
			for _, method := range []string{"GET", "POST", "GET", "POST", "PUT", "GET"} {
				r, err := http.NewRequestWithContext(t.Context(), method, srv.URL, strings.NewReader("one"))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := (&http.Client{Transport: tr}).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "one" {
					t.Errorf("%s: %q, %v", method, text, err)
				}
				resp.Body.Close()
			}
			if n := conns.Load(); n != c.conns {
				t.Errorf("%d connections, want %d", n, c.conns)
			}
		})
	}
}
