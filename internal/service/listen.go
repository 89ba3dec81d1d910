package service

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/network"
	"github.com/semelhq/semel/internal/service/auth"
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

// With plain, it speaks HTTP/1.1 only: see [semelproxy.Follow].
func listen(address string, certs config.TLS, plain bool, limits *config.Limits, handler http.Handler, opts limit.Options, log *slog.Logger) (*listener, error) {
	handler = limit.Requests(handler, limits.Connections, opts)
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	l, err := newListener(ln, certs, plain, limits, handler, log)
	if err != nil {
		ln.Close()
	}
	return l, err
}

func newListener(ln net.Listener, certs config.TLS, plain bool, limits *config.Limits, handler http.Handler, log *slog.Logger) (_ *listener, err error) {
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
		l.server.Protocols.SetUnencryptedHTTP2(!plain)
	} else {
		l.server.Protocols.SetHTTP2(!plain)
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

// tlsConfig reads the files of a listener. New connections get a changed certificate
// file, so you can renew it in place.
func tlsConfig(files config.TLS) (*tls.Config, error) {
	certs := &certificates{cert: files.Cert, key: files.Key}
	if _, err := certs.get(nil); err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certs.get}
	if files.ClientCA != "" {
		pem, err := auth.ReadFile(files.ClientCA, maxKeyFile)
		if err != nil {
			return nil, err
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM form", files.ClientCA)
		}
		// Callers may also authenticate by a token, so a certificate is verified if there
		// is one, and required of nobody.
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return c, nil
}

// certificates is a certificate in two files, which you may replace at any time.
type certificates struct {
	cert, key string

	mu       sync.Mutex
	loaded   *tls.Certificate
	modified time.Time // of the certificate file, when it was loaded
	looked   time.Time
}

// certPause is how often the files are checked.
const certPause = 10 * time.Second

// get is GetCertificate of [tls.Config]. If a new pair can't be read, the old one stays
// in use.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded != nil && time.Since(c.looked) < certPause {
		return c.loaded, nil
	}
	c.looked = time.Now()
	info, err := os.Stat(c.cert)
	if err == nil && c.loaded != nil && info.ModTime().Equal(c.modified) {
		return c.loaded, nil
	}
	if pair, perr := tls.LoadX509KeyPair(c.cert, c.key); perr == nil {
		c.loaded = &pair
		if err == nil {
			c.modified = info.ModTime()
		}
	} else if c.loaded == nil {
		return nil, perr
	}
	return c.loaded, nil
}

func newBudget(l *config.Limits) *limit.Budget {
	return limit.NewBudget(limit.Bounds{Total: int64(l.TotalBytes), Tenant: int64(l.TenantBytes), Principal: int64(l.PrincipalBytes)})
}

func paceOf(l *config.Limits) limit.Pace {
	return limit.Pace{Rate: int64(l.Rate), Grace: time.Duration(l.RateGrace)}
}

func (s *Server) limitOptions(cfg *config.Config) limit.Options {
	return limit.Options{
		TypeBase: problemsPath, Caller: callerOf, Pace: paceOf(&cfg.Limits), BodyTimeout: time.Duration(cfg.Limits.ReadTimeout),
		Refused: func(r *http.Request, code semel.Code) {
			tap := s.engine.Internal()
			tap.Answered(tap.Arrived(r.Context(), s.current().doorOf(r), r.Header), semel.Delivered{Code: code})
		},
	}
}

// unverified is the tenant of callers whom nobody has verified. No other has this name.
const unverified = "\x00"

// callerOf names the caller who pays for a request from their budget. Somebody unverified can
// make up a credential for every request, so their address counts instead; for IPv6, the
// network of one subscriber.
func callerOf(r *http.Request) limit.Caller {
	if id, ok := auth.FromContext(r.Context()); ok {
		return limit.Caller{Tenant: id.Tenant, Principal: id.Principal}
	}
	c := limit.Caller{Tenant: unverified, Principal: r.RemoteAddr}
	if from := network.OfClient(r.RemoteAddr); from.IsValid() {
		c.Principal = from.String()
	}
	return c
}

func quotasOf(q *config.Quotas) semel.Quotas {
	return semel.Quotas{
		Window:           time.Duration(q.Window),
		PrincipalRecords: int64(q.PrincipalRecords), PrincipalBytes: int64(q.PrincipalBytes),
		TenantRecords: int64(q.TenantRecords), TenantBytes: int64(q.TenantBytes),
		UnverifiedHolds: int64(q.UnverifiedHolds),
		Account:         accountOf,
	}
}

type networkKey struct{}

// accountOf names the tenant and principal that pay for a record from their quotas. Callers whom
// nobody has verified, and whoever sends to a door of the service's own, count by the network that
// they call from, because they can have another name each time. The former have a common tenant,
// and each of these doors is one, so none uses up what others have.
func accountOf(ctx context.Context, rec *semel.Record) (tenant, principal string) {
	network, _ := ctx.Value(networkKey{}).(string)
	who := cmp.Or(rec.Principal, rec.BoundTo)
	switch {
	case semelhttp.DerivedPrincipal(who):
		return unverified, network
	case config.ReservedOperation(rec.ID.Operation):
		return rec.ID.Operation, network
	}
	return rec.ID.Tenant, who
}
