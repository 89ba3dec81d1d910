package semelproxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"slices"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/safehttp"
)

// Name is the door in a proxy's events for the engine: failed upstream calls, and the findings
// of [ModeShadow]. The requests that it guards come through [semelhttp.Name].
const Name = "proxy"

// Proxy is one route to one upstream. It may be used concurrently.
type Proxy struct {
	guard     *semelhttp.Guard
	tap       semel.Internal
	opts      Options
	timeout   time.Duration
	keepsHost bool            // the upstream gets the client's Host
	owned     map[string]bool // request headers to remove
	protected map[string]bool // headers that Connection may not name

	transport *safehttp.Transport
	reverse   *httputil.ReverseProxy
	inspector *semelhttp.Inspector
	guarded   http.Handler // nil unless the mode is enforce
	shadow    *shadow      // nil unless the mode is shadow

	running context.Context // done once Interrupt is called
	stop    context.CancelFunc
}

// New makes a proxy. In the mode enforce it registers the route's operation with
// the guard's engine. The error reports all problems with the options.
func New(guard *semelhttp.Guard, opts Options) (*Proxy, error) {
	if guard == nil {
		return nil, errors.New("semelproxy: New needs a guard")
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts.Mode = cmp.Or(opts.Mode, ModeEnforce)
	opts.Route.IgnoreFlush = false // the proxy knows which answers are streams
	opts.Route.Forwards = true
	opts.Unguarded = slices.Clone(opts.Unguarded)
	opts.TrustedProxies = slices.Clone(opts.TrustedProxies)
	keepsHost := opts.PreserveHost == HostAlways || opts.PreserveHost != HostNever && opts.Upstream.Scheme != "https"
	switch {
	case opts.PreserveHost == HostAlways: // hosts are different services
		opts.Route.ScopeHeaders = append(slices.Clip(opts.Route.ScopeHeaders), semelhttp.ScopeHost)
	case keepsHost:
		// Another host may be another service, or the same one under another name. A key that
		// comes with both is refused, so it can neither run twice nor get another service's
		// answer.
		opts.Route.FingerprintHeaders = append(slices.Clip(opts.Route.FingerprintHeaders), "Host")
	}
	p := &Proxy{
		guard: guard, tap: guard.Engine().Internal(), opts: opts, timeout: cmp.Or(opts.Route.Timeout, semelhttp.DefaultTimeout), keepsHost: keepsHost,
		owned: map[string]bool{}, protected: protectedHeaders(&opts),
		transport: newTransport(opts.Transport),
	}
	for _, name := range opts.owned() {
		p.owned[name] = true
	}
	p.running, p.stop = context.WithCancel(context.Background())
	p.reverse = &httputil.ReverseProxy{
		Rewrite: p.rewrite, ModifyResponse: received, Transport: p.transport, ErrorHandler: p.failed, BufferPool: new(buffers),
		ErrorLog: log.New(io.Discard, "", 0), // reportError reports the rest, or an answer broke off
	}
	var err error
	if p.inspector, err = guard.Inspect(opts.Route); err != nil {
		return nil, err
	}
	for _, name := range p.inspector.Forbidden() {
		p.owned[name] = true
	}
	switch opts.Mode {
	case ModeShadow:
		p.shadow = newShadow(p.tap, p.inspector, opts.Shadow)
	case ModeEnforce:
		if p.guarded, err = guard.Handle(opts.Route, http.HandlerFunc(p.execute)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// ServeHTTP handles one request by the mode.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, unguarded, refused := p.judge(r, p.opts.Mode)
	switch shadows := p.opts.Mode == ModeShadow; {
	case refused != nil:
		p.refuse(w, r, *refused)
	case p.opts.Mode == ModeOff:
		p.pass(w, r, UnguardedOff)
	case shadows && unguarded != "":
		p.pass(w, r, UnguardedShadow)
	case shadows:
		p.shadow.serve(w, r, func(w http.ResponseWriter, r *http.Request) { p.pass(w, r, UnguardedShadow) })
	case unguarded != "":
		p.pass(w, r, string(unguarded))
	default:
		p.guarded.ServeHTTP(w, r)
	}
}

// Guards reports whether this proxy makes sure that the request is executed once: its
// mode is enforce, and the request has a key and a guarded method.
func (p *Proxy) Guards(r *http.Request) bool {
	return p.opts.Mode == ModeEnforce && p.inspector.MayHaveKey(r) && p.inspector.Guards(r) &&
		!slices.ContainsFunc(p.opts.Unguarded, func(kind Kind) bool { return kind.is(r) })
}

// ShadowCounts returns the counts of the mode shadow since the proxy started. They are zero in
// other modes.
func (p *Proxy) ShadowCounts() ShadowCounts {
	if p.shadow == nil {
		return ShadowCounts{}
	}
	return p.shadow.counts()
}

// ShadowKeys counts the keys that the mode shadow has found since the proxy started, by
// their place, such as header:Idempotency-Key or json:/id. It is empty in other modes.
func (p *Proxy) ShadowKeys() map[string]int64 {
	if p.shadow == nil {
		return map[string]int64{}
	}
	p.shadow.mu.Lock()
	defer p.shadow.mu.Unlock()
	return maps.Clone(p.shadow.keys)
}

// Interrupt cancels the running guarded upstream calls, and later ones. Their attempts end as
// after a broken connection: aborted if nothing was sent, otherwise with an unknown outcome.
// Call it when the process must end.
func (p *Proxy) Interrupt() { p.stop() }

// Close closes unused connections to the upstream. Running requests continue.
func (p *Proxy) Close() { p.transport.CloseIdleConnections() }
