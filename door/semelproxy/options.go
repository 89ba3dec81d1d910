package semelproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
)

// Mode says how much a proxy does.
type Mode string

// The modes.
const (
	ModeEnforce Mode = "enforce" // deduplicate; the default
	ModeShadow  Mode = "shadow"  // pass everything, and report what enforce would have deduplicated
	ModeOff     Mode = "off"     // pass everything
)

// Kind is a kind of request that a route may let pass unguarded, because it often has no single
// answer to keep.
type Kind string

// The kinds.
const (
	// KindSSE: the request accepts text/event-stream and nothing else.
	KindSSE Kind = "sse"
	// KindUpgrade: the request asks for another protocol, such as WebSocket. An
	// offer of h2c doesn't count; it is ignored.
	KindUpgrade Kind = "upgrade"
	// KindGRPC: the body is application/grpc, or one of its relatives.
	KindGRPC Kind = "grpc"
)

// Why a request with a key wasn't guarded, besides its [Kind], in [semelhttp.UnguardedHeader].
const (
	UnguardedOff    = "off"    // the mode is off
	UnguardedShadow = "shadow" // the mode is shadow
)

var kinds = []Kind{KindSSE, KindUpgrade, KindGRPC}

// Protocol is the protocol to the upstream.
type Protocol string

// The protocols.
const (
	// ProtocolAuto is HTTP/1.1 for http URLs, and the negotiated protocol for https. The
	// default.
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
	// Upstream is the address for requests: scheme and host, and a path that comes before
	// theirs.
	Upstream *url.URL
	// Route says how requests are guarded. Its IgnoreFlush is ignored: event streams pass
	// through, and all other answers are captured. Its Timeout, which must not be negative,
	// also bounds the wait for the head of the answer to unguarded requests.
	Route semelhttp.Route
	// Mode defaults to [ModeEnforce].
	Mode Mode
	// Unguarded are the kinds of requests that pass unguarded although they have a key; the
	// answer says so in [semelhttp.UnguardedHeader]. The client chooses the kind of its
	// request, so list a kind only if duplicates of it don't harm the upstream. Other event
	// streams are guarded and recorded; gRPC calls are guarded, and their replays say only that
	// they ran; other upgrades are refused. Defaults to none.
	Unguarded []Kind
	// Transport configures connections to the upstream.
	Transport TransportOptions
	// PreserveHost says whether the upstream gets the client's Host, which must then be the
	// same in all deliveries of a call. Defaults to [HostAuto]. X-Forwarded-Host always has the
	// client's.
	PreserveHost HostRule
	// TrustedProxies are the networks of proxies in front of this one: the proxy keeps and
	// extends their Forwarded, X-Forwarded-For and similar headers, and replaces everybody
	// else's. Defaults to none.
	TrustedProxies []netip.Prefix
	// Identity returns the tenant and the principal for the two headers below. Use the
	// guard's. Without it the headers are only removed.
	Identity semelhttp.IdentityFunc
	// TenantHeader and PrincipalHeader name the headers that give the upstream the caller's
	// identity. They are removed from clients' requests. Default to none.
	TenantHeader    string
	PrincipalHeader string
	// StripHeaders are further request headers to remove, because the upstream trusts them.
	StripHeaders []string
	// OwnCredential reports whether a request's Authorization header is a credential for this
	// proxy only, which the upstream doesn't get. Its context is the request's. Defaults to
	// never.
	OwnCredential func(ctx context.Context) bool
	// EffectHeader is the header that gives the upstream the effect's key, which is the same in
	// all attempts of a call. It is removed from clients' requests. Defaults to none. Setting
	// it puts the upstream call into the ledger.
	EffectHeader string
	// PassKey is the header that gives the upstream the key of a guarded call, such as the
	// Idempotency-Key of a payment gateway behind a route with a KeyTemplate. It replaces what
	// the client sent there, and isn't in the ledger. Defaults to none.
	PassKey string
	// Admit says whether a call may run, under its attempt and before the upstream gets it. After
	// a refusal the next delivery asks again. Optional.
	Admit func(r *http.Request, a *semel.Attempt) *semelhttp.Refusal
	// Shadow configures ModeShadow.
	Shadow ShadowOptions
	// Attrs distinguish this proxy from others in the log lines of failed upstream calls.
	Attrs []slog.Attr
}

// TransportOptions configures a [Proxy]'s connections to its upstream.
type TransportOptions struct {
	// Protocol defaults to [ProtocolAuto].
	Protocol Protocol
	// TLS is used for https. Optional.
	TLS *tls.Config
	// DialTimeout bounds making a connection. Defaults to 5 seconds.
	DialTimeout time.Duration
	// IdleTimeout is how long an unused connection stays open. It should be shorter than
	// the upstream's, because a request on a connection that is being closed has an unknown
	// outcome; see Fresh. Defaults to 1 second.
	IdleTimeout time.Duration
	// Fresh gives each guarded request over HTTP/1.1 its own connection, which costs more.
	// Without it, a connection is checked before it is reused, and dropped if the upstream has
	// closed it. The check can't see an upstream close it while the request is on its way, for
	// example because it stops: the call is then held, because the upstream may have read it.
	// Defaults to false.
	Fresh bool
	// MaxIdle is how many unused connections stay open. Defaults to 512.
	MaxIdle int
	// MaxConns bounds the connections over HTTP/1.1. Zero: no bound.
	MaxConns int
}

// Defaults of [TransportOptions].
const (
	DefaultDialTimeout = 5 * time.Second
	DefaultIdleTimeout = time.Second
	DefaultMaxIdle     = 512
)

// validate reports everything that is wrong, except with the route, which the guard
// validates.
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
	o.validatePassKey(bad)
	return errors.Join(errs...)
}

// validatePassKey checks that the upstream can get the key, and that the key distinguishes all
// calls that Semel does.
func (o *Options) validatePassKey(bad func(string, ...any)) {
	if o.PassKey == "" {
		return
	}
	name := http.CanonicalHeaderKey(o.PassKey)
	if slices.Contains(o.owned(), name) || name == "Host" || name == judge.EffectHeader {
		bad("PassKey can't be %s, which has a use of its own", name)
	}
	if t := o.Route.KeyTemplate; t.ScopeField != "" && !strings.Contains(t.Template, "{"+t.ScopeField+"}") {
		bad("PassKey needs {%s} in the template: the upstream doesn't get the scope, and would take two calls for one", t.ScopeField)
	}
}

// owned returns the headers that no client may send to the upstream, apart from the ones that
// proxies set.
func (o *Options) owned() []string {
	var names []string
	for _, n := range append([]string{o.TenantHeader, o.PrincipalHeader, o.EffectHeader}, o.StripHeaders...) {
		if n != "" {
			names = append(names, http.CanonicalHeaderKey(n))
		}
	}
	return names
}
