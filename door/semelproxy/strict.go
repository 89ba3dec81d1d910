package semelproxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/problem"
)

// Limits that [Strict] sets if the server has none.
const (
	DefaultMaxHeaderBytes    = 32 << 10
	DefaultReadHeaderTimeout = 5 * time.Second
)

// Strict protects a server against request smuggling: requests with ambiguous framing get
// 400, and their connection is closed. net/http accepts some of them, such as one with both
// Content-Length and Transfer-Encoding, and doesn't show it to handlers.
//
// Call it before the server is used and pass the listener it returns to
// [http.Server.Serve].
// If the server has a TLSConfig, the listener speaks TLS. MaxHeaderBytes and
// ReadHeaderTimeout get defaults; Handler, ConnContext and ConnState are wrapped.
func Strict(srv *http.Server, l net.Listener) net.Listener {
	srv.MaxHeaderBytes = cmp.Or(srv.MaxHeaderBytes, DefaultMaxHeaderBytes)
	srv.ReadHeaderTimeout = cmp.Or(srv.ReadHeaderTimeout, DefaultReadHeaderTimeout)
	if srv.Handler == nil {
		srv.Handler = http.DefaultServeMux
	}
	srv.Handler = strictHandler{next: srv.Handler, options: !srv.DisableGeneralOptionsHandler}
	srv.DisableGeneralOptionsHandler = true // so that it counts every request
	outer := srv.ConnContext
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if outer != nil {
			ctx = outer(ctx, c)
		}
		if s, ok := c.(interface{ strict() *strictConn }); ok {
			ctx = context.WithValue(ctx, strictKey{}, s.strict())
		}
		return ctx
	}
	changed := srv.ConnState
	srv.ConnState = func(c net.Conn, state http.ConnState) {
		if s, ok := c.(interface{ strict() *strictConn }); ok && state == http.StateIdle {
			s.strict().sent()
		}
		if changed != nil {
			changed(c, state)
		}
	}
	if srv.TLSConfig == nil {
		return strictListener{l}
	}
	config := srv.TLSConfig.Clone()
	if !slices.Contains(config.NextProtos, "http/1.1") {
		config.NextProtos = append(slices.Clone(config.NextProtos), "http/1.1")
	}
	if (srv.Protocols == nil || srv.Protocols.HTTP2()) && !slices.Contains(config.NextProtos, "h2") {
		config.NextProtos = append([]string{"h2"}, config.NextProtos...)
	}
	srv.TLSConfig = config // it tells the server that HTTP/2 is allowed
	return newTLSListener(l, config, srv.ReadHeaderTimeout)
}

type strictKey struct{}

// strictHandler refuses requests that the connection found ambiguous.
type strictHandler struct {
	next    http.Handler
	options bool // answer OPTIONS *
}

func (h strictHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c, ok := r.Context().Value(strictKey{}).(*strictConn); ok {
		n := c.served.Add(1)
		if fault := c.framing.bad.Load(); fault != nil && n >= fault.request {
			refuseFraming(w, fault)
			return
		}
	}
	if h.options && r.Method == http.MethodOptions && r.RequestURI == "*" {
		w.Header().Set("Content-Length", "0")
		return
	}
	h.next.ServeHTTP(w, r)
}

// refuseFraming answers with a problem document, whatever the route.
func refuseFraming(w http.ResponseWriter, fault *framingFault) {
	w.Header().Set("Connection", "close")
	m, _ := door.Lookup(door.CodeAmbiguousFraming)
	door.SetEffect(w.Header(), m.Effect)
	why := "Where this request begins or ends can be read in two ways: " + fault.why + ". Nothing was executed."
	problem.Write(w, m.Status, semelhttp.NewProblem("urn:semel:problem:", m.Code, why))
}

type strictListener struct{ net.Listener }

func (l strictListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &strictConn{Conn: c}, nil
}

// strictConn feeds everything that it reads to framing.
type strictConn struct {
	net.Conn
	framing framing // only the reading goroutine feeds it
	served  atomic.Int64
	heard   heard
}

func (c *strictConn) strict() *strictConn { return c }

func (c *strictConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.framing.feed(p[:n])
	c.read(n, err)
	return n, err
}

func (c *strictConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.lost()
	}
	return n, err
}

// Close waits in the background for the client's end, if that is all that can still tell whether an
// answer arrived.
func (c *strictConn) Close() error {
	if c.heard.waiting.Load() > 0 && c.heard.ended.CompareAndSwap(false, true) {
		go c.linger()
		return nil
	}
	c.lost()
	return c.Conn.Close()
}

// CloseWrite lets the server end an answer before it closes, so that the client
// can read it.
func (c *strictConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return nil
}

// strictTLSConn is a strictConn with a TLS state that net/http can read.
type strictTLSConn struct{ strictConn }

func (c *strictTLSConn) ConnectionState() tls.ConnectionState {
	return c.Conn.(*tls.Conn).ConnectionState()
}

// tlsListener makes the handshakes itself, because they determine the protocol, and
// HTTP/2 needs the bare connection.
type tlsListener struct {
	net.Listener
	config  *tls.Config
	timeout time.Duration
	ready   chan net.Conn
	failed  chan error // the error of the inner listener's Accept
	done    chan struct{}
	start   func()
	close   func() error
}

func newTLSListener(inner net.Listener, config *tls.Config, timeout time.Duration) *tlsListener {
	l := &tlsListener{
		Listener: inner, config: config, timeout: timeout,
		ready: make(chan net.Conn), failed: make(chan error), done: make(chan struct{}),
	}
	l.start = sync.OnceFunc(func() { go l.accept() })
	l.close = sync.OnceValue(func() error {
		close(l.done)
		return inner.Close()
	})
	return l
}

// accept runs until the listener is closed.
func (l *tlsListener) accept() {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			select {
			case l.failed <- err:
			case <-l.done:
				return
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		go l.handshake(c)
	}
}

func (l *tlsListener) handshake(c net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	t := tls.Server(c, l.config)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return
	}
	var conn net.Conn = &strictTLSConn{strictConn{Conn: t}}
	if t.ConnectionState().NegotiatedProtocol == "h2" {
		conn = t
	}
	select {
	case l.ready <- conn:
	case <-l.done:
		_ = c.Close()
	}
}

func (l *tlsListener) Accept() (net.Conn, error) {
	l.start()
	select {
	case c := <-l.ready:
		return c, nil
	case err := <-l.failed:
		return nil, err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. Unfinished handshakes fail or time out.
func (l *tlsListener) Close() error { return l.close() }
