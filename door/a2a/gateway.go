package a2a

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/body"
)

// Defaults of [GatewayOptions].
const (
	DefaultMaxBody = 4 << 20
	DefaultTimeout = time.Minute
)

// GatewayOptions configures a [Gateway]. Operation and Upstream are required; every other
// field's zero value is the documented default.
type GatewayOptions struct {
	// Operation is the policy for messages, and is registered. Its MaxResult bounds the
	// recorded tasks: for a larger one, duplicates get the agent's current answer.
	Operation semel.Operation
	// Upstream is the agent's URL: its JSON-RPC endpoint, and the base of its REST binding.
	Upstream *url.URL
	// Path is where the gateway is mounted, such as /agent; the rest of a request's path is
	// appended to Upstream's path. Defaults to the root.
	Path string
	// Identify says who sent a request. Defaults to the guard's.
	Identify func(r *http.Request) (semelhttp.Caller, error)
	// Answers say what the agent's answers mean, in place of the table of package judge. A
	// stream is judged by its head.
	Answers judge.Answers
	// Forward says how requests are forwarded. Its Upstream, Route and Mode aren't used.
	Forward semelproxy.Options
	// MaxBody is the largest request, in bytes. Defaults to 4 MiB.
	MaxBody int64
	// MaxStream is the largest stream that the gateway records while it passes, in bytes; duplicates
	// of a larger one get its task. Negative: none. Defaults to 4 MiB.
	MaxStream int64
	// Timeout is how long the agent may take to answer, or be silent in a stream. Defaults to 1
	// minute.
	Timeout time.Duration
	// Wait is how long a duplicate of a message in progress waits for its task, and for the
	// task's end unless the sender doesn't want to wait for that. Defaults to 30 seconds.
	Wait time.Duration
	// Attributes are kept with a message's record, by name, so that people can find it. Each is
	// json:/POINTER of the message, such as json:/metadata/order_id, or header:NAME.
	Attributes map[string]string
	// Attrs distinguish this gateway from others in log lines.
	Attrs []slog.Attr
}

// Gateway is a reverse proxy in front of one agent. Each message reaches the agent at most
// once. It is stateless: any number of gateways on one store may be in front of an agent. You
// may use it concurrently.
//
// It serves POSTs of A2A's JSON-RPC at any path below its own, and its REST binding at
// message:send and message:stream, with whatever comes before them. GET, HEAD and DELETE
// without a body pass, such as for tasks. So do methods and paths that read, follow or cancel
// tasks, or configure notifications about them. Everything else is refused: it might start
// work. Unidentified callers get only the public part, below /.well-known/: the agent's card.
//
// A message and its answer pass unchanged; but an answer, and the last event of a stream, is
// sent only once the outcome is recorded. Semel's own refusals are errors of the binding, with
// the code of Semel as the reason of a google.rpc.ErrorInfo.
type Gateway struct {
	*guard
	opts     GatewayOptions
	upstream string // the path of the upstream's URL
	proxy    *semelproxy.Proxy
	// rules are the rules for answers of an agent behind any number of proxies.
	rules judge.Rules
}

// NewGateway makes a gateway on the engine of a guard, with the guard's runner and callers,
// and registers its operation.
func NewGateway(callers *semelhttp.Guard, opts GatewayOptions) (*Gateway, error) {
	if callers == nil || opts.Upstream == nil {
		return nil, errors.New("a2a: a gateway needs a guard and an Upstream")
	}
	opts.MaxBody, opts.Timeout = cmp.Or(opts.MaxBody, DefaultMaxBody), cmp.Or(opts.Timeout, DefaultTimeout)
	opts.MaxStream = cmp.Or(opts.MaxStream, semelhttp.DefaultMaxStream)
	if opts.MaxBody < 0 {
		return nil, errors.New("a2a: MaxBody may not be negative")
	}
	if opts.Identify == nil {
		opts.Identify = callers.Caller
	}
	opts.Path = strings.TrimSuffix(opts.Path, "/")
	g, err := newGuard(callers.Engine(), callers.Runner(), opts.Operation, opts.Attributes, opts.Timeout, cmp.Or(opts.Wait, DefaultWait))
	if err != nil {
		return nil, err
	}
	answers, err := opts.Answers.Parse()
	if err != nil {
		return nil, fmt.Errorf("a2a: Answers: %w", err)
	}
	forward := opts.Forward
	forward.Upstream, forward.Attrs = opts.Upstream, opts.Attrs
	forward.Route = semelhttp.Route{Operation: semel.Operation{Name: opts.Operation.Name}, Timeout: opts.Timeout, Answers: opts.Answers}
	proxy, err := semelproxy.NewSender(callers, forward)
	if err != nil {
		return nil, err
	}
	// A redirect isn't followed, so it isn't a result.
	rules := judge.Rules{Answers: answers, Financial: g.operation.Financial, RedirectsUnclear: true}
	return &Gateway{guard: g, opts: opts, upstream: opts.Upstream.Path, proxy: proxy, rules: rules}, nil
}

// Interrupt cancels the messages in progress. Their outcomes are then unknown.
func (g *Gateway) Interrupt() { g.proxy.Interrupt() }

// Close closes unused connections to the agent.
func (g *Gateway) Close() { g.proxy.Close() }

// ServeHTTP handles one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	door.Tell(r.Context(), g.engine.Internal(), Name, r.Header, func(ctx context.Context) (semel.Delivered, bool) {
		if ctx != r.Context() {
			r = r.WithContext(ctx)
		}
		e, answered := g.serve(w, r)
		e.ID.Operation, e.Attrs = g.operation.Name, g.opts.Attrs
		return e, answered
	})
}

// serve answers a request, and returns the event about it. It reports false if the request has
// passed.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) (e semel.Delivered, answered bool) {
	req, ok := g.locate(r)
	refuse := func(f refusal) (semel.Delivered, bool) {
		f.write(w, req)
		e.Code = f.code
		return e, true
	}
	bare := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodDelete
	switch {
	case !ok:
		return refuse(refusalFor(semel.CodeNotFound))
	case bare && r.ContentLength != 0:
		f := refusalFor(door.CodeBodyTooLarge)
		f.detail = "No GET, HEAD or DELETE of A2A has a body, and some agents would read it. Nothing was sent on."
		return refuse(f)
	case bare && req.public:
		g.proxy.Pass(w, req.in)
		return e, false
	case bare:
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST, GET, HEAD, DELETE")
		return refuse(refusalFor(door.CodeMethodNotAllowed))
	case !body.IsJSON(r.Header, "application/a2a+json") && (len(r.Header["Content-Type"]) > 0 || !req.passes()):
		return refuse(refusalFor(door.CodeUnsupportedMedia))
	}
	who, err := g.opts.Identify(r)
	if err != nil {
		code, detail := semelproxy.Unidentified(err, w.Header())
		f := refusalFor(code)
		e.Err, f.detail = err, cmp.Or(detail, f.detail)
		return refuse(f)
	}
	if bare || req.passes() {
		g.proxy.Pass(w, req.in)
		return e, false
	}
	if req.body, e.Code, err = semelproxy.ReadBody(w, r, g.opts.MaxBody); err != nil {
		if e.Code == "" {
			return e, false
		}
		return refuse(refusalFor(e.Code))
	}
	guarded, err := req.read()
	if err == nil && !guarded {
		g.proxy.Pass(w, body.With(r.Context(), req.in, req.body))
		return e, false
	}
	var call semel.Call
	if err == nil {
		call, err = req.msg.call(g.guard, who, r.Header)
	}
	if err != nil {
		return refuse(refusalOfRequest(err))
	}
	f := g.forwarding(w, req)
	defer func() { f.recording.Finish() }()
	c := &conversation{guard: g.guard, exchange: f, stream: req.stream, now: req.msg.now}
	return c.converse(r.Context(), call), true
}

// passes reports whether a POST of the REST binding starts no work, by its path: it cancels or
// follows a task, or configures notifications about it, and may have no body.
func (r *request) passes() bool { return !r.rpc && r.base == "" }

// locate finds out where a request goes, and in which binding it comes. It reports false if its
// path is ambiguous, or isn't the gateway's.
func (g *Gateway) locate(r *http.Request) (*request, bool) {
	req := &request{in: r.Clone(r.Context()), rpc: true}
	rest, ok := strings.CutPrefix(r.URL.Path, g.opts.Path)
	if !ok || rest != "" && rest[0] != '/' || !plainPath(rest) {
		return req, false
	}
	req.in.Header.Del("Upgrade") // nobody guards what goes through a tunnel
	u := req.in.URL
	raw, _ := strings.CutPrefix(u.EscapedPath(), (&url.URL{Path: g.opts.Path}).EscapedPath())
	base := g.upstream
	switch {
	case g.opts.Path == "" && rest == "/": // the root itself, which has no further path
		rest, raw = "", ""
	case rest != "":
		base = strings.TrimSuffix(base, "/")
	}
	u.Path, u.RawPath = base+rest, (&url.URL{Path: base}).EscapedPath()+raw
	req.public = r.Method != http.MethodDelete && strings.HasPrefix(rest, "/.well-known/")
	switch {
	case strings.HasSuffix(rest, "/message:send"), strings.HasSuffix(rest, "/message:stream"):
		req.rpc, req.stream = false, strings.HasSuffix(rest, "stream")
		req.base = u.Path[:strings.LastIndex(u.Path, "/")+1]
	case passesREST.MatchString(rest):
		req.rpc = false
	}
	return req, true
}
