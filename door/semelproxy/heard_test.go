package semelproxy_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/semelhq/semel/door/semelproxy"
)

// following is a server that answers each request with 100,000 bytes, those for /wait when it may,
// and tells what became of the answers.
type following struct {
	*httptest.Server
	told chan string
	came chan struct{}
	may  chan struct{}
	done chan struct{} // gets one value for each answer that was sent
}

// lastChunk is the answer to /chunked.
const lastChunk = "data: x\n\n"

func newFollowing(t *testing.T, strict bool, certs []tls.Certificate) *following {
	s := &following{told: make(chan string, 10), came: make(chan struct{}, 10), may: make(chan struct{}), done: make(chan struct{}, 10)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := semelproxy.Follow(r, func(arrived bool) { s.told <- map[bool]string{true: "arrived", false: "lost"}[arrived] })
		s.came <- struct{}{}
		if r.URL.Path == "/wait" {
			<-s.may
		}
		if d.Gone() {
			s.done <- struct{}{}
			return
		}
		d.Ending()
		if r.URL.Path == "/chunked" {
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, lastChunk) // a client who is gone is told of
			return
		}
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write(make([]byte, 100_000))
		s.done <- struct{}{}
	}))
	if certs != nil {
		s.Config.TLSConfig = &tls.Config{Certificates: certs}
	}
	if strict {
		s.Listener = semelproxy.Strict(s.Config, s.Listener)
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// client is one connection to the server.
type client struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func (s *following) dial(t *testing.T, secure bool) *client {
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	}
	return &client{t, conn, bufio.NewReader(conn)}
}

func (c *client) send(path, header string) {
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: a\r\n"+header+"\r\n"); err != nil {
		c.t.Error(err)
	}
}

func (c *client) read() {
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); n != 100_000 || err != nil {
		c.t.Errorf("%d bytes, %v", n, err)
	}
}

// reset ends the connection at once.
func (c *client) reset() {
	conn := c.Conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

// TestFollow: what the connection shows of an answer's arrival.
func TestFollow(t *testing.T) {
	certs := httptest.NewTLSServer(nil)
	defer certs.Close()
	cleanEnd := "lost"
	if runtime.GOOS == "linux" {
		cleanEnd = "arrived"
	}
	for _, c := range []struct {
		name   string
		header string
		path   string
		do     func(s *following, c *client)
		want   string
	}{
		{"another request", "", "/", func(s *following, c *client) { c.read(); c.send("/wait", ""); <-s.came; defer close(s.may) }, "arrived"},
		{"a clean end", "", "/", func(_ *following, c *client) { c.read(); c.Close() }, cleanEnd},
		{"a reset", "", "/", func(_ *following, c *client) { c.read(); c.reset() }, "lost"},
		{"an end without reading", "", "/", func(s *following, c *client) { <-s.done; c.Close() }, "lost"},
		{"an end in the middle", "", "/", func(_ *following, c *client) { _, _ = io.CopyN(io.Discard, c, 1000); c.Close() }, "lost"},
		{"an end before", "", "/wait", func(s *following, c *client) { <-s.came; c.Close(); defer close(s.may) }, "lost"},
		{"a reset before", "", "/wait", func(s *following, c *client) { <-s.came; c.reset(); defer close(s.may) }, "lost"},
		{"a clean end of a client that has the last chunk", "", "/chunked", func(_ *following, c *client) {
			resp, _ := http.ReadResponse(c.in, nil)
			_, _ = io.ReadFull(resp.Body, make([]byte, len(lastChunk)))
			c.Close()
		}, cleanEnd},
		{"a clean end behind a proxy", "Via: 1.1 a\r\n", "/", func(_ *following, c *client) { c.read(); c.Close() }, cleanEnd},
		{"another request behind a proxy, and then a reset", "X-Forwarded-For: 1.2.3.4\r\n", "/", func(s *following, c *client) {
			c.read()
			<-s.came
			c.send("/wait", "")
			<-s.came
			c.reset()
			defer close(s.may)
		}, "lost"},
		{"the server ends it after the answer", "Connection: close\r\n", "/", func(_ *following, c *client) { c.read(); c.Close() }, cleanEnd},
		{"the server ends it, and the client reads to the end", "Connection: close\r\n", "/", func(s *following, c *client) {
			c.read()
			<-s.done
			if _, secure := c.Conn.(*tls.Conn); !secure {
				_, _ = io.Copy(io.Discard, c)
			}
			c.Close()
		}, cleanEnd},
		{"the server ends it, and the client resets", "Connection: close\r\n", "/", func(s *following, c *client) { c.read(); <-s.done; c.reset() }, "lost"},
		{"the server ends it, and the client doesn't read", "Connection: close\r\n", "/", func(s *following, c *client) { <-s.done; c.Close() }, "lost"},
		{"the server ends it", "", "/", func(s *following, c *client) { c.read(); <-s.done; s.CloseClientConnections() }, "lost"},
	} {
		for _, secure := range []bool{false, true} {
			if secure && (c.name == "an end without reading" || c.name == "the server ends it, and the client doesn't read") {
				continue // TLS has read it
			}
			t.Run(map[bool]string{true: c.name + " over TLS", false: c.name}[secure], func(t *testing.T) {
				var list []tls.Certificate
				if secure {
					list = certs.TLS.Certificates
				}
				s := newFollowing(t, true, list)
				conn := s.dial(t, secure)
				conn.send(c.path, c.header)
				c.do(s, conn)
				if got := <-s.told; got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
			})
		}
	}
	t.Run("without a strict server only the end before is seen", func(t *testing.T) {
		s := newFollowing(t, false, nil)
		conn := s.dial(t, false)
		conn.send("/", "")
		conn.read()
		conn.send("/wait", "")
		<-s.came
		<-s.came
		conn.reset()
		if got := <-s.told; got != "lost" || len(s.told) != 0 {
			t.Errorf("%s, and %d more", got, len(s.told))
		}
		close(s.may)
	})
	t.Run("a client that has left when its request is read", func(t *testing.T) {
		s := newFollowing(t, true, nil)
		gone := make(chan bool, 1)
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d := semelproxy.Follow(r, func(bool) {})
			for range 2 {
				s.came <- struct{}{}
				<-s.may
				gone <- d.Gone()
			}
		})
		conn := s.dial(t, false)
		conn.send("/", "")
		<-s.came
		s.may <- struct{}{}
		if <-gone {
			t.Error("before it has left")
		}
		<-s.came
		conn.reset()
		s.may <- struct{}{}
		if !<-gone {
			t.Error("after that")
		}
	})
	t.Run("silence says nothing", func(t *testing.T) {
		s := newFollowing(t, true, nil)
		conn := s.dial(t, false)
		conn.send("/", "")
		conn.read()
		<-s.done
		if len(s.told) != 0 {
			t.Errorf("%s", <-s.told)
		}
	})
}
