package semelproxy

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// faultOf feeds a stream in pieces of the given sizes, over and over.
func faultOf(stream string, sizes ...int) (request int64, why string) {
	var f framing
	for i := 0; len(stream) > 0; i++ {
		n := min(sizes[i%len(sizes)], len(stream))
		f.feed([]byte(stream[:n]))
		stream = stream[n:]
	}
	if bad := f.bad.Load(); bad != nil {
		return bad.request, bad.why
	}
	return 0, ""
}

func TestFraming(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	const post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n\r\n\r\n"
	const chunked = "POST / HTTP/1.1\r\nTransfer-Encoding:\tChunked \r\n\r\n4;a=\"b\"\r\n\r\n\r\n\r\n0a \r\n0123456789\r\n000\r\nX: y\r\n\r\n"
	for _, c := range []struct {
		name, stream string
		request      int64
	}{
		{"requests without a body", get + get, 0},
		{"bodies that look like ends of heads", post + chunked + get, 0},
		{"a fault after bodies", post + chunked + get + "GET / HTTP/1.1\n", 4},
		{"a length and a coding", get + "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-length: 0\r\n\r\n", 2},
		{"a coding in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 1},
		{"a coding that is no coding is not looked at", "POST / HTTP/1.1\r\nX-Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + get, 0},
		{"a size that is no number makes the next request doubtful", get + "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 3},
		{"a size without digits", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n;x\r\n", 2},
		{"a chunk without its line end", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", 2},
		{"HTTP/2 is not looked at", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\n\n\n" + "Content-Length: 1\n\n", 0},
		{"a request that begins like HTTP/2", "PRI * HTTP/2.0\r\nHost: a\r\n\r\n" + post, 1},
		{"a preface that does not go on", "PRI * HTTP/2.0\r\n\r\n" + get, 1},
		{"a preface after a request", get + "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 2},
		{"a preface after an empty line", "\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 1},
		{"its method with another version", "PRI * HTTP/1.1\r\nHost: a\r\n\r\n", 1},
		{"its method with another target", "PRI / HTTP/2.0\r\n\r\nSM\r\n\r\n", 1},
		{"a method that begins like it", "PRINT / HTTP/1.1\r\nHost: a\r\n\r\n" + get, 0},
		{"a tunnel is not looked at", "CONNECT a:1 HTTP/1.1\n\n\n", 1},
		{"a line without end", "GET /" + strings.Repeat("x", maxFramingLine) + " HTTP/1.1\r\n", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			request, why := faultOf(c.stream, 4096)
			if request != c.request || (why == "") != (c.request == 0) {
				t.Errorf("request %d is at fault (%s), want %d", request, why, c.request)
			}
		})
	}
}

// FuzzFraming: whatever a client sends, no request reaches a handler whose head framing
// didn't see, but for those of HTTP/2.
func FuzzFraming(f *testing.F) {
	files, _ := filepath.Glob("testdata/raw/*.txt")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	const smuggled = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, before := range []string{"", "PRI * HTTP/2.0\r\nHost: a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\nPRI * HTTP/2.0\r\nHost: a\r\n\r\n", "PRI / HTTP/1.1\r\nHost: a\r\n\r\n"} {
		f.Add([]byte(before + smuggled))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		var passed atomic.Int64
		srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 1 { // net/http gives a bare preface to the handler, and ends the connection
				passed.Add(1)
			}
			_, _ = io.Copy(io.Discard, r.Body)
		})}
		one := &oneConn{conn: &sent{stream: bytes.NewReader(stream)}, closed: make(chan struct{})}
		var conn *strictConn
		l := Strict(srv, one)
		done := make(chan struct{})
		srv.ConnState = func(c net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				conn = c.(*strictConn)
			case http.StateClosed, http.StateHijacked:
				close(done)
			}
		}
		go func() { _ = srv.Serve(l) }()
		<-done
		_ = srv.Close()
		if n := passed.Load(); n > conn.framing.heads {
			t.Fatalf("%d requests reached the handler, of which framing saw %d", n, conn.framing.heads)
		}
	})
}

// sent is a connection whose client has sent a stream, and reads whatever it is answered.
type sent struct{ stream *bytes.Reader }

func (c *sent) Read(p []byte) (int, error)       { return c.stream.Read(p) }
func (c *sent) Write(p []byte) (int, error)      { return len(p), nil }
func (c *sent) Close() error                     { return nil }
func (c *sent) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *sent) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *sent) SetDeadline(time.Time) error      { return nil }
func (c *sent) SetReadDeadline(time.Time) error  { return nil }
func (c *sent) SetWriteDeadline(time.Time) error { return nil }

// oneConn is a listener with one connection.
type oneConn struct {
	conn   net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

func TestFramingDoesNotDependOnPackets(t *testing.T) {
	files, err := filepath.Glob("testdata/raw/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	pieces := []string{
		"POST / HTTP/1.1\r\n", "GET / HTTP/1.0\r\n", "Host: a\r\n", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", "\r\n", "\n", "hello",
		"5\r\n", "0\r\n", "x", "\r", " folded\r\n", "PRI * HTTP/2.0\r\n", "5;ext\r\nhello\r\n",
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pieces = append(pieces, string(text))
	}
	rapid.Check(t, func(t *rapid.T) {
		stream := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 30).Draw(t, "pieces"), "")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 40), 1, 10).Draw(t, "sizes")
		request, why := faultOf(stream, len(stream))
		if r, w := faultOf(stream, sizes...); r != request || w != why {
			t.Fatalf("request %d (%s) at once, %d (%s) in pieces of %v", request, why, r, w, sizes)
		}
	})
}
