package service

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/internal/service/limit"
)

// streams is how many requests one connection of HTTP/2 may have at once: what servers and
// proxies have by default, so that clients know it.
const streams = 100

type listener struct {
	net    net.Listener
	server *http.Server
}

func listen(address string, certs config.TLS, limits *config.Limits, handler http.Handler, opts limit.Options, log *slog.Logger) (*listener, error) {
	handler = limit.Requests(handler, limits.Connections, &opts)
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	l, err := newListener(ln, certs, limits, handler, log)
	if err != nil {
		ln.Close()
	}
	return l, err
}

func newListener(ln net.Listener, certs config.TLS, limits *config.Limits, handler http.Handler, log *slog.Logger) (_ *listener, err error) {
	pace := paceOf(limits)
	ln = limit.Listener(ln, limits.Connections, pace)
	l := &listener{server: &http.Server{
		Handler:           pace.Streams(handler),
		MaxHeaderBytes:    int(limits.HeaderBytes),
		ReadHeaderTimeout: time.Duration(limits.ReadHeaderTimeout),
		ReadTimeout:       time.Duration(limits.ReadTimeout),
		IdleTimeout:       time.Duration(limits.IdleTimeout),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streams},
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
	l.server.Protocols = new(http.Protocols)
	l.server.Protocols.SetHTTP1(true)
	if certs.Cert == "" {
		l.server.Protocols.SetUnencryptedHTTP2(true)
	} else {
		l.server.Protocols.SetHTTP2(true)
		if l.server.TLSConfig, err = tlsConfig(certs); err != nil {
			return nil, err
		}
	}
	l.net = semelproxy.Strict(l.server, ln)
	return l, nil
}

// addr is the address; loopback's without a listener.
func (l *listener) addr() net.Addr {
	if l == nil {
		return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	}
	return l.net.Addr()
}

func (l *listener) serve() error {
	err := l.server.Serve(l.net)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (l *listener) shutdown(ctx context.Context) error { return l.server.Shutdown(ctx) }

func (l *listener) close() {
	l.server.Close()
	l.net.Close()
}
