//go:build unix

package safehttp_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/semelhq/semel/safehttp"
)

// slow is a connection whose reader runs late: it reads once after each request.
type slow struct {
	*net.TCPConn
	writes  int // of each request: net/http writes the head alone if it doesn't know the body
	sent    int
	written chan struct{}
	closed  chan struct{}
	once    sync.Once
}

func (c *slow) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	if c.sent++; c.sent%c.writes == 0 {
		c.written <- struct{}{}
	}
	return n, err
}

func (c *slow) Read(p []byte) (int, error) {
	select {
	case <-c.written:
		return c.TCPConn.Read(p)
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *slow) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.TCPConn.Close()
}

// await returns when something unread has arrived.
func (c *slow) await(t *testing.T) {
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for came := syscall.EAGAIN; came == syscall.EAGAIN; runtime.Gosched() {
		err := raw.Control(func(fd uintptr) {
			_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
			came, _ = err.(syscall.Errno)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// leaver answers the first request on each connection, and then leaves. It counts the
// other requests, and doesn't answer them.
type leaver struct {
	net.Listener
	leave    chan struct{} // it may, on one connection
	mu       sync.Mutex
	answered []string // the bodies
	wg       sync.WaitGroup
}

func newLeaver(t *testing.T, leave func(*net.TCPConn)) *leaver {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &leaver{Listener: ln, leave: make(chan struct{})}
	l.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			l.wg.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for n := 0; ; n++ {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					body, _ := io.ReadAll(r.Body)
					if n > 0 {
						t.Errorf("%q was sent on a connection that nobody listens to", body)
						return
					}
					l.mu.Lock()
					l.answered = append(l.answered, string(body))
					l.mu.Unlock()
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
					if _, ok := <-l.leave; ok {
						leave(conn.(*net.TCPConn))
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		close(l.leave)
		l.wg.Wait()
	})
	return l
}

// No request begins on a connection on which something unread has arrived.
func TestAConnectionThatWasLeftGetsNoRequest(t *testing.T) {
	for name, leave := range map[string]func(*net.TCPConn){
		"closed": func(c *net.TCPConn) { _ = c.CloseWrite() },
		"reset": func(c *net.TCPConn) {
			_ = c.SetLinger(0)
			_ = c.Close()
		},
		"told something": func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
		},
	} {
		for what, kind := range map[string]struct {
			body   string
			stream bool // it can't be made again
		}{"no body": {}, "a body": {"charge", false}, "a stream": {strings.Repeat("charge", 500), true}} {
			body := kind.body
			t.Run(name+", with "+what, func(t *testing.T) {
				l := newLeaver(t, leave)
				var conns []*slow
				tr := &safehttp.Transport{Look: true, Base: &http.Transport{
					DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
						c, err := new(net.Dialer).DialContext(ctx, network, addr)
						if err != nil {
							return nil, err
						}
						writes := 1
						if kind.stream {
							writes = 2
						}
						conns = append(conns, &slow{TCPConn: c.(*net.TCPConn), writes: writes, written: make(chan struct{}, 9), closed: make(chan struct{})})
						return conns[len(conns)-1], nil
					},
				}}
				defer tr.CloseIdleConnections()
				for n := range 3 {
					r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+l.Addr().String(), strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Idempotency-Key", "k1")
					if kind.stream {
						r.GetBody = nil
					}
					resp, err := tr.RoundTrip(r)
					if err != nil {
						t.Fatalf("request %d: %v", n, err)
					}
					if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "ok" {
						t.Errorf("request %d: %q, %v", n, text, err)
					}
					_ = resp.Body.Close()
					if len(conns) != n+1 {
						t.Fatalf("request %d was sent on an old connection", n)
					}
					if n < 2 {
						l.leave <- struct{}{}
						conns[n].await(t)
					}
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				if got := strings.Join(l.answered, " "); len(l.answered) != 3 || got != strings.Join([]string{body, body, body}, " ") || len(conns) != 3 {
					t.Errorf("answered %.99q on %d connections", l.answered, len(conns))
				}
			})
		}
	}
}

// An answer from 500 may be followed by a close that is still on its way.
func TestAConnectionIsNotUsedAgainAfterA5xx(t *testing.T) {
	for name, stream := range map[string]bool{"a body": false, "a stream": true} {
		t.Run(name, func(t *testing.T) {
			var conns []string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conns = append(conns, r.RemoteAddr)
				status, _ := strconv.Atoi(r.URL.Path[1:])
				w.WriteHeader(status)
			}))
			defer srv.Close()
			tr := &safehttp.Transport{Look: true, Base: &http.Transport{}}
			defer tr.CloseIdleConnections()
			for _, status := range []int{200, 422, 500, 201, 503, 200} {
				r, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/"+strconv.Itoa(status), strings.NewReader("charge"))
				if err != nil {
					t.Fatal(err)
				}
				if stream {
					r.GetBody = nil
				}
				resp, err := tr.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			}
			if len(conns) != 6 || conns[0] != conns[1] || conns[1] != conns[2] || conns[2] == conns[3] || conns[3] != conns[4] || conns[4] == conns[5] {
				t.Errorf("by %v", conns)
			}
		})
	}
}

// Status lines below 100 are none, whatever the method.
func TestStatusesThatAreNone(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(conn, "HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n")
			}
			_ = conn.Close()
		}
	}()
	tr := &safehttp.Transport{Look: true, Base: &http.Transport{}}
	defer tr.CloseIdleConnections()
	for _, method := range []string{"GET", "POST"} {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+ln.Addr().String(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := tr.RoundTrip(r); err == nil || safehttp.NothingSent(err) {
			t.Errorf("%s: %v, %v", method, resp, err)
		}
	}
}

// What was read by a server that then broke the connection is sent once.
func TestARequestThatBreaksIsSentOnce(t *testing.T) {
	b := newBreaker(t)
	rt := &safehttp.Transport{Base: &http.Transport{}, Look: true}
	defer rt.CloseIdleConnections()
	if err := b.afterOneUse(t, rt, io.MultiReader(strings.NewReader("charge"))); err == nil || safehttp.NothingSent(err) {
		t.Errorf("got %v", err)
	}
	if n := b.requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}
