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
	turn  chan struct{} // held by whoever looks for a connection, or makes one
	conns []*http.ClientConn
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
	all := Bodies{Request: &one}
	for {
		conn, reused, err := s.take(r.Context(), r.URL)
		if err != nil {
			if !errors.Is(err, ErrNotHTTP2) {
				all.Close()
			}
			return nil, &Error{Nothing: true, Err: err}
		}
		// Before the first field of the head nothing is written.
		var sent Sending
		trace := &httptrace.ClientTrace{WroteHeaderField: func(string, []string) { sent.begun.Store(&unknown) }}
		once := *r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
		once.GetBody = nil
		if once.Body, err = all.Next(&sent); err != nil {
			all.Close()
			return nil, &Error{Nothing: true, Err: err}
		}
		resp, err := conn.RoundTrip(&once)
		if err == nil {
			resp.Request = r
			return resp, nil
		}
		// If the context is over, RoundTrip doesn't wait for who writes the head.
		nothing := sent.Nothing() && r.Context().Err() == nil
		if nothing && reused {
			s.drop(r.URL, conn) // it was closed, or the server wants to close it
			continue
		}
		all.Close()
		return nil, &Error{Nothing: nothing || refused(err), Err: err}
	}
}

// take finds a connection with a place for one request, and makes one if there is none. It
// reserves nothing: net/http counts a reservation as a running request, and if a server
// turns out to allow fewer than were reserved, all of them wait for ever. Instead, a
// request may have to wait, or look for another connection.
func (s *Streams) take(ctx context.Context, u *url.URL) (conn *http.ClientConn, reused bool, err error) {
	at := addressOf(u)
	h := s.host(u.Scheme, at)
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	if conn := s.available(h); conn != nil {
		return conn, true, nil
	}
	if conn, err = s.base.NewClientConn(ctx, u.Scheme, at); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	h.conns = append(h.conns, conn)
	s.mu.Unlock()
	return conn, false, nil
}

// drop takes a connection away from later requests. It closes itself once nobody uses it.
func (s *Streams) drop(u *url.URL, conn *http.ClientConn) {
	h := s.host(u.Scheme, addressOf(u))
	s.mu.Lock()
	defer s.mu.Unlock()
	h.conns = slices.DeleteFunc(h.conns, func(c *http.ClientConn) bool { return c == conn })
}

// available finds a connection with a place, and forgets the closed ones. One that isn't
// used for IdleConnTimeout, or that the server wants to close, closes itself.
func (s *Streams) available(h *streamHost) *http.ClientConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.conns = slices.DeleteFunc(h.conns, func(c *http.ClientConn) bool { return c.Err() != nil })
	for _, c := range h.conns {
		if c.Available() > 0 {
			return c
		}
	}
	return nil
}

func (s *Streams) host(scheme, at string) *streamHost {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := scheme + "://" + at
	h := s.hosts[name]
	if h == nil {
		if len(s.hosts) >= maxStreamHosts {
			s.forget()
		}
		h = &streamHost{turn: make(chan struct{}, 1)}
		s.hosts[name] = h
	}
	return h
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

func addressOf(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
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

// refused reports whether a server has said so of a request.
func refused(err error) bool {
	e, ok := errors.AsType[streamError](err)
	return ok && e.Code == refusedStream
}
