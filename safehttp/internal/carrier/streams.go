package carrier

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
)

// Streams makes requests over HTTP/2, each on one connection and once. The transport of
// net/http sends a request again by itself, also after a PROTOCOL_ERROR, which proves
// nothing; and if it can't, what the server has said is only in the text of its error.
type Streams struct {
	base *http.Transport // makes connections that speak HTTP/2, or none

	mu    sync.Mutex
	hosts map[string]*streamHost // by scheme and address
}

// streamHost is one server.
type streamHost struct {
	scheme, address string
	turn            chan struct{} // held by whoever looks for a connection, or makes one
	conns           []*http.ClientConn
}

// maxStreamHosts bounds the servers that [Streams] remembers, if the addresses of requests
// come from others.
const maxStreamHosts = 1024

// ErrNotHTTP2 is why there is no connection to a server that chose another protocol.
var ErrNotHTTP2 = errors.New("safehttp: the server doesn't speak HTTP/2 any more")

// NewStreams makes its connections as base does.
func NewStreams(base *http.Transport) *Streams {
	s := &Streams{base: base.Clone(), hosts: map[string]*streamHost{}}
	s.base.TLSNextProto, s.base.ForceAttemptHTTP2 = nil, true
	if s.base.TLSClientConfig == nil {
		s.base.TLSClientConfig = new(tls.Config)
	}
	s.base.TLSClientConfig.NextProtos = nil // base may have filled them in
	verify := s.base.TLSClientConfig.VerifyConnection
	s.base.TLSClientConfig.VerifyConnection = func(state tls.ConnectionState) error {
		if verify != nil {
			if err := verify(state); err != nil {
				return err
			}
		}
		if state.NegotiatedProtocol != "h2" {
			return ErrNotHTTP2
		}
		return nil
	}
	return s
}

// RoundTrip sends a request once, on the first connection that takes anything of it. After
// ErrNotHTTP2, its body is as it was.
func (s *Streams) RoundTrip(r *http.Request) (*http.Response, error) {
	one := *r
	one.GetBody = nil // so that the body stays open until something was sent
	all := bodies{Request: &one}
	for {
		h := s.host(r.URL)
		conn, reused, err := s.take(r.Context(), h)
		if err != nil {
			if !errors.Is(err, ErrNotHTTP2) {
				all.close()
			}
			return nil, &Error{Nothing: true, Err: err}
		}
		// Before the first field of the head nothing is written.
		var sent sending
		trace := &httptrace.ClientTrace{WroteHeaderField: func(string, []string) { sent.begun.Store(&unknown) }}
		once := r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
		once.GetBody = nil
		if once.Body, err = all.next(&sent); err != nil {
			all.close()
			return nil, &Error{Nothing: true, Err: err}
		}
		resp, err := conn.RoundTrip(once)
		if err == nil {
			resp.Request = r
			return resp, nil
		}
		// If the context is over, RoundTrip doesn't wait for who writes the head.
		nothing := sent.nothing() && r.Context().Err() == nil
		if nothing && reused {
			// It was closed, or the server wants to close it. Then it does so once nobody
			// uses it.
			s.mu.Lock()
			h.conns = slices.DeleteFunc(h.conns, func(c *http.ClientConn) bool { return c == conn })
			s.mu.Unlock()
			continue
		}
		all.close()
		reset, ok := errors.AsType[streamError](err)
		return nil, &Error{Nothing: nothing || ok && reset.Code == refusedStream, Err: err}
	}
}

// host finds the server of a URL.
func (s *Streams) host(u *url.URL) *streamHost {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	address := net.JoinHostPort(u.Hostname(), port)
	name := u.Scheme + "://" + address
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hosts[name]
	if h == nil {
		if len(s.hosts) >= maxStreamHosts {
			s.forget()
		}
		h = &streamHost{scheme: u.Scheme, address: address, turn: make(chan struct{}, 1)}
		s.hosts[name] = h
	}
	return h
}

// take finds a connection with a place for one request, and makes one if there is none. It
// reserves nothing: net/http counts a reservation as a running request, and if a server
// turns out to allow fewer than were reserved, all of them wait for ever. Instead, a
// request may have to wait, or look for another connection.
func (s *Streams) take(ctx context.Context, h *streamHost) (conn *http.ClientConn, reused bool, err error) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	s.mu.Lock()
	// One that isn't used for IdleConnTimeout, or that the server wants to close, closes itself.
	h.conns = slices.DeleteFunc(h.conns, func(c *http.ClientConn) bool { return c.Err() != nil })
	i := slices.IndexFunc(h.conns, func(c *http.ClientConn) bool { return c.Available() > 0 })
	if i >= 0 {
		conn = h.conns[i]
	}
	s.mu.Unlock()
	if conn != nil {
		return conn, true, nil
	}
	if conn, err = s.base.NewClientConn(ctx, h.scheme, h.address); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	h.conns = append(h.conns, conn)
	s.mu.Unlock()
	return conn, false, nil
}

// CloseIdle closes the connections that no request uses.
func (s *Streams) CloseIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
}

// forget closes the connections that no request uses, and drops servers without any.
func (s *Streams) forget() {
	for name, h := range s.hosts {
		h.conns = slices.DeleteFunc(h.conns, func(c *http.ClientConn) bool { return c.InFlight() == 0 && c.Close() == nil })
		if len(h.conns) == 0 {
			delete(s.hosts, name)
		}
	}
}

// refusedStream is the code of a server that has not processed a request and won't, so that
// it may be sent again (RFC 9113 section 8.7).
const refusedStream = 7

// streamError has the members of StreamError in golang.org/x/net/http2: net/http lets
// [errors.As] copy its own error into any such struct.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (streamError) Error() string { return "the server has reset the stream" }
