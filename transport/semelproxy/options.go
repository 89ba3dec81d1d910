package semelproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/semelhq/semel/transport/semelhttp"
)

// Mode is how much a proxy does.
type Mode string

// The modes.
const (
	ModeEnforce Mode = "enforce" // deduplicate; the default
	ModeShadow  Mode = "shadow"  // pass everything, and report what would have been deduplicated
	ModeOff     Mode = "off"     // pass everything
)

// Kind is a kind of request that a route may let pass without a guard, because
// what it is answered with is often no single answer that could be kept.
type Kind string

// The kinds.
const (
	// KindSSE: the request accepts text/event-stream and nothing else.
	KindSSE Kind = "sse"
	// KindUpgrade: the request asks for another protocol, such as WebSocket. An
	// offer of h2c is none: it is ignored.
	KindUpgrade Kind = "upgrade"
	// KindGRPC: the body is application/grpc, or one of its relatives.
	KindGRPC Kind = "grpc"
)

// Why a request with a key was not guarded, besides its [Kind], as
// [semelhttp.UnguardedHeader] says.
const (
	UnguardedOff    = "off"    // the mode is off
	UnguardedShadow = "shadow" // the mode is shadow
)

var kinds = []Kind{KindSSE, KindUpgrade, KindGRPC}

// Protocol is what is spoken with the upstream.
type Protocol string

// The protocols.
const (
	// ProtocolAuto is HTTP/1.1 for http URLs, and whatever is negotiated for
	// https. The default.
	ProtocolAuto Protocol = "auto"
	// ProtocolHTTP1 is HTTP/1.1 only.
	ProtocolHTTP1 Protocol = "http1"
	// ProtocolHTTP2 is HTTP/2 over TLS only.
	ProtocolHTTP2 Protocol = "http2"
	// ProtocolH2C is HTTP/2 without TLS, with prior knowledge.
	ProtocolH2C Protocol = "h2c"
)

// Options configures a [Proxy].
type Options struct {
	// Upstream is where requests go: scheme and host, and a path that theirs is
	// appended to.
	Upstream *url.URL
	// Route is how requests are guarded. Its IgnoreFlush is not used: answers
	// that are event streams pass through, all others are captured. Its Timeout,
	// which may not be negative, also bounds the wait for the head of the answer
	// to requests that are not guarded.
	Route semelhttp.Route
	// Mode defaults to [ModeEnforce].
	Mode Mode
	// Unguarded are the kinds of requests that pass without a guard although they
	// have a key; the answer then says so in [semelhttp.UnguardedHeader]. The
	// client says what kind a request is of, so name one only where the upstream
	// can stand duplicates of it. Without the name, event streams and gRPC calls
	// are guarded, and leave no answer to replay but the fact that they ran, and
	// upgrades are refused. Defaults to none.
	Unguarded []Kind
	// Transport is how connections to the upstream are made.
	Transport TransportOptions
	// PreserveHost says whether the upstream gets the Host that the client sent,
	// which is then part of what deliveries of one call have in common. Defaults to
	// [HostAuto]. X-Forwarded-Host has the client's in any case.
	PreserveHost HostRule
	// TrustedProxies are the networks of proxies in front of this one: what they
	// say in Forwarded, X-Forwarded-For and the like is kept and extended. From all
	// others it is removed, and made anew. Defaults to none.
	TrustedProxies []netip.Prefix
	// Identity tells the tenant and the principal for the two headers below. It
	// should be the guard's. Without it the headers are only removed.
	Identity semelhttp.IdentityFunc
	// TenantHeader and PrincipalHeader are the names of the headers that the
	// upstream gets the caller's identity in. What clients send under these
	// names is removed. Default to none.
	TenantHeader    string
	PrincipalHeader string
	// StripHeaders are further request headers that are removed, because the
	// upstream trusts them.
	StripHeaders []string
	// OwnCredential reports whether the Authorization header of a request is a
	// credential for this proxy and for nobody else, which the upstream does not get.
	// Its context is that of the request. Defaults to never.
	OwnCredential func(ctx context.Context) bool
	// EffectHeader is the header in which the upstream gets the key of the
	// effect, which is the same in all attempts at one call. What clients send
	// under this name is removed. Defaults to none. Setting it puts the upstream
	// call into the ledger.
	EffectHeader string
	// Shadow bounds what ModeShadow remembers, and is told what it found.
	Shadow ShadowOptions
	// OnError is told of upstream calls that failed. Optional. It is called by
	// many goroutines at once.
	OnError func(ctx context.Context, err error)
}

// TransportOptions is how a [Proxy] makes connections to its upstream.
type TransportOptions struct {
	// Protocol defaults to [ProtocolAuto].
	Protocol Protocol
	// TLS is used for https. Optional.
	TLS *tls.Config
	// DialTimeout bounds making a connection. Defaults to 5 seconds.
	DialTimeout time.Duration
	// IdleTimeout is how long an unused connection is kept. It should be shorter
	// than the upstream's, because a request that meets a connection in the
	// moment of its closing has an unknown outcome; see Reuse. Defaults to 1
	// second.
	IdleTimeout time.Duration
	// Reuse sends guarded requests over HTTP/1.1 on connections that were used
	// before, which costs less. Without it each has a connection of its own: an
	// upstream that restarts closes the connections that are idle, and a request
	// that one of them has just been given is lost, and held because nobody can
	// prove that. Defaults to false.
	Reuse bool
	// MaxIdle is how many unused connections are kept. Defaults to 512.
	MaxIdle int
	// MaxConns bounds all connections over HTTP/1.1. Zero: no bound.
	MaxConns int
}

// Defaults of [TransportOptions].
const (
	DefaultDialTimeout = 5 * time.Second
	DefaultIdleTimeout = time.Second
	DefaultMaxIdle     = 512
)

// validate reports everything that is wrong. What is wrong with the route, the
// guard reports.
func (o *Options) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("semelproxy: "+format, args...))
	}
	switch u := o.Upstream; {
	case u == nil:
		bad("Upstream is missing")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "":
		bad("Upstream %s is not an http or https URL with a host and at most a path", u.Redacted())
	case o.Transport.Protocol == ProtocolH2C && u.Scheme != "http":
		bad("Protocol h2c needs an http URL as Upstream")
	case o.Transport.Protocol == ProtocolHTTP2 && u.Scheme != "https":
		bad("Protocol http2 needs an https URL as Upstream; without TLS use h2c")
	}
	if !slices.Contains([]Mode{"", ModeEnforce, ModeShadow, ModeOff}, o.Mode) {
		bad("Mode is %q, not enforce, shadow or off", o.Mode)
	}
	if !slices.Contains([]Protocol{"", ProtocolAuto, ProtocolHTTP1, ProtocolHTTP2, ProtocolH2C}, o.Transport.Protocol) {
		bad("Protocol is %q, not auto, http1, http2 or h2c", o.Transport.Protocol)
	}
	if !slices.Contains(hostRules, o.PreserveHost) {
		bad("PreserveHost is %q, not auto, always or never", o.PreserveHost)
	}
	for _, k := range o.Unguarded {
		if !slices.Contains(kinds, k) {
			bad("Unguarded has %q, not one of %v", k, kinds)
		}
	}
	if o.Route.Timeout < 0 {
		bad("Route.Timeout is negative: an upstream call needs a deadline")
	}
	if t := &o.Transport; t.DialTimeout < 0 || t.IdleTimeout < 0 || t.MaxIdle < 0 || t.MaxConns < 0 {
		bad("DialTimeout, IdleTimeout, MaxIdle and MaxConns may not be negative")
	}
	if o.Shadow.MaxCalls < 0 || o.Shadow.MaxBody < 0 {
		bad("Shadow.MaxCalls and Shadow.MaxBody may not be negative")
	}
	for _, name := range o.owned() {
		if name == http.CanonicalHeaderKey(o.Route.KeyHeader) || name == semelhttp.DefaultKeyHeader || name == "Host" {
			bad("%s can't be a header that is removed or set", name)
		}
	}
	return errors.Join(errs...)
}

// owned are the headers that no client may send to the upstream, apart from those
// that proxies set.
func (o *Options) owned() []string {
	var names []string
	for _, n := range append([]string{o.TenantHeader, o.PrincipalHeader, o.EffectHeader}, o.StripHeaders...) {
		if n != "" {
			names = append(names, http.CanonicalHeaderKey(n))
		}
	}
	return names
}
