package safehttp_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/safehttp"
)

// Frames of HTTP/2 (RFC 9113 section 6).
const (
	frameData, frameHeaders, frameRST, frameSettings, frameGoAway = 0x0, 0x1, 0x3, 0x4, 0x7

	flagEndStream, flagEndHeaders, flagAck = 0x1, 0x4, 0x1
)

// h2server speaks just enough HTTP/2 to answer each request as a test says, once the
// request has arrived whole.
type h2server struct {
	requests atomic.Int64
	conns    atomic.Int64
	url      string
	settings atomic.Pointer[[]byte] // of each connection; nil: the defaults
	answer   func(n int64, c *h2conn, stream uint32)
}

type h2conn struct{ net.Conn }

// frame writes one frame. A client that has gone misses nothing.
func (c *h2conn) frame(kind, flags byte, stream uint32, payload ...byte) {
	head := []byte{0, byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	_, _ = c.Write(append(binary.BigEndian.AppendUint32(head, stream), payload...))
}

func (c *h2conn) reset(stream, code uint32) {
	c.frame(frameRST, 0, stream, binary.BigEndian.AppendUint32(nil, code)...)
}

// ok answers 200 without a body: 0x88 is that status in HPACK's table.
func (c *h2conn) ok(stream uint32) {
	c.frame(frameHeaders, flagEndHeaders|flagEndStream, stream, 0x88)
}

func startH2(t *testing.T, secure *tls.Config, answer func(n int64, c *h2conn, stream uint32)) *h2server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &h2server{answer: answer, url: "http://" + ln.Addr().String()}
	if secure != nil {
		ln, s.url = tls.NewListener(ln, secure), "https://"+ln.Addr().String()
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			s.conns.Add(1)
			wg.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return s
}

func (s *h2server) serve(conn net.Conn) {
	defer conn.Close()
	c, in := &h2conn{conn}, bufio.NewReader(conn)
	if _, err := io.CopyN(io.Discard, in, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	var settings []byte
	if p := s.settings.Load(); p != nil {
		settings = *p
	}
	c.frame(frameSettings, 0, 0, settings...)
	for {
		var head [9]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, in, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
			return
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		switch {
		case kind == frameSettings && flags&flagAck == 0:
			c.frame(frameSettings, flagAck, 0)
		case (kind == frameHeaders || kind == frameData) && flags&flagEndStream != 0:
			s.answer(s.requests.Add(1), c, stream)
		}
	}
}

func h2c() *http.Transport {
	t := &http.Transport{Protocols: new(http.Protocols)}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

func post(t *testing.T, tr http.RoundTripper, url, body string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "one")
	resp, err := tr.RoundTrip(r)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

// What a server says of a request that it got whole over HTTP/2, and what that proves. Each
// is sent once, whatever net/http would do.
func TestResetStreams(t *testing.T) {
	clause.Proves(t, "IDS-IX.3")
	for name, c := range map[string]struct {
		answer  func(c *h2conn, stream uint32)
		nothing bool
	}{
		"REFUSED_STREAM":                      {func(c *h2conn, stream uint32) { c.reset(stream, 0x7) }, true},
		"PROTOCOL_ERROR":                      {func(c *h2conn, stream uint32) { c.reset(stream, 0x1) }, false},
		"INTERNAL_ERROR":                      {func(c *h2conn, stream uint32) { c.reset(stream, 0x2) }, false},
		"CANCEL":                              {func(c *h2conn, stream uint32) { c.reset(stream, 0x8) }, false},
		"a closed socket":                     {func(c *h2conn, _ uint32) { _ = c.Close() }, false},
		"GOAWAY, which net/http doesn't tell": {func(c *h2conn, _ uint32) { c.frame(frameGoAway, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) }, false},
	} {
		for _, body := range []string{"charge", ""} {
			t.Run(fmt.Sprintf("%s, body %q", name, body), func(t *testing.T) {
				s := startH2(t, nil, func(n int64, conn *h2conn, stream uint32) {
					if n == 1 {
						c.answer(conn, stream)
						return
					}
					conn.ok(stream)
				})
				tr := &safehttp.Transport{Base: h2c()}
				defer tr.CloseIdleConnections()
				if err := post(t, tr, s.url, body); err == nil || safehttp.NothingSent(err) != c.nothing {
					t.Errorf("%v, nothing sent is %t", err, !c.nothing)
				}
				if n := s.requests.Load(); n != 1 {
					t.Errorf("it was sent %d times", n)
				}
				if err := post(t, tr, s.url, body); err != nil || s.requests.Load() != 2 {
					t.Errorf("after that: %v, %d requests", err, s.requests.Load())
				}
			})
		}
	}
}

// A server that no connection can be made to got nothing, nor did one whose client was told
// to stop before that. Once a request may be on its way, stopping proves nothing.
func TestStreamsThatDidNotBegin(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := "http://" + ln.Addr().String()
	_ = ln.Close()
	tr := &safehttp.Transport{Base: h2c()}
	if err := post(t, tr, gone, "charge"); !safehttp.NothingSent(err) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := startH2(t, nil, func(int64, *h2conn, uint32) { cancel() })
	r, err := http.NewRequestWithContext(ctx, "POST", s.url, strings.NewReader("charge"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.RoundTrip(r); !errors.Is(err, context.Canceled) || safehttp.NothingSent(err) {
		t.Error(err)
	}
	if _, err := tr.RoundTrip(r); !errors.Is(err, context.Canceled) || safehttp.NothingSent(err) && s.requests.Load() != 1 {
		t.Error(err)
	}
	tr.CloseIdleConnections()
}

// Requests at one time share a connection, as far as the server allows.
func TestStreamsShareConnections(t *testing.T) {
	for name, c := range map[string]struct {
		settings []byte
		most     int64
	}{
		"many at a time": {nil, 1},
		"one at a time":  {[]byte{0, 3, 0, 0, 0, 1}, 9}, // MAX_CONCURRENT_STREAMS
	} {
		t.Run(name, func(t *testing.T) {
			s := startH2(t, nil, func(_ int64, conn *h2conn, stream uint32) { conn.ok(stream) })
			s.settings.Store(&c.settings)
			tr := &safehttp.Transport{Base: h2c()}
			defer tr.CloseIdleConnections()
			var wg sync.WaitGroup
			for range 9 {
				wg.Go(func() {
					if err := post(t, tr, s.url, "charge"); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := s.conns.Load(); n > c.most || s.requests.Load() != 9 {
				t.Errorf("%d connections for %d requests", n, s.requests.Load())
			}
		})
	}
}

// A server that chooses the protocol is asked again once it has chosen another.
func TestServersThatChangeTheirProtocol(t *testing.T) {
	var got []string
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Proto) }))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	tr := &safehttp.Transport{Base: srv.Client().Transport}
	send := func() {
		if err := post(t, tr, srv.URL, "charge"); err != nil {
			t.Fatal(len(got), err)
		}
	}
	send()
	send()
	srv.TLS.NextProtos = []string{"http/1.1"}
	for n := len(got); len(got) == n || got[len(got)-1] == "HTTP/2.0"; {
		tr.CloseIdleConnections() // once the answer is whole for it
		send()
	}
	send()
	if n := len(got); got[0] != "HTTP/2.0" || got[1] != "HTTP/2.0" || got[n-2] != "HTTP/1.1" || got[n-1] != "HTTP/1.1" {
		t.Errorf("by %v", got)
	}
	tr.CloseIdleConnections()
}
