// Package loopback has the servers and clients of benchmarks over HTTP, on the loopback
// interface.
package loopback

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/semelhq/semel/transport/semelproxy"
)

// Site is a server on loopback.
type Site struct {
	listener net.Listener
	server   *http.Server
	done     chan error
}

// Serve starts a server; if strict, one like that of semel serve.
func Serve(h http.Handler, strict bool) (*Site, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Site{listener: l, done: make(chan error, 1), server: &http.Server{
		Handler: h, ErrorLog: log.New(io.Discard, "", 0),
		// Strict sets these, so all servers get them.
		MaxHeaderBytes: semelproxy.DefaultMaxHeaderBytes, ReadHeaderTimeout: semelproxy.DefaultReadHeaderTimeout,
	}}
	if strict {
		l = semelproxy.Strict(s.server, l)
	}
	go func() { s.done <- s.server.Serve(l) }()
	return s, nil
}

// Addr is its host and port.
func (s *Site) Addr() string { return s.listener.Addr().String() }

// Close waits until the server has ended.
func (s *Site) Close() error {
	err := s.server.Close()
	if serr := <-s.done; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}
