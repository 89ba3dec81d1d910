package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/engine/background"
	"github.com/semelhq/semel/internal/extract"
	"github.com/semelhq/semel/internal/network"
	"github.com/semelhq/semel/internal/relay"
	"github.com/semelhq/semel/internal/toolcall"
)

// Name is the mark of records that came through this door; see [semel.Call].Door.
const Name = "mcp"

// Defaults of [GatewayOptions].
const (
	DefaultMaxBody = 4 << 20
	DefaultTimeout = 10 * time.Minute
	DefaultEcho    = 2 * time.Minute
)

// GatewayOptions configures a [Gateway]. Operation and Upstream are required; the zero value
// of every other field is the documented default.
type GatewayOptions struct {
	// Operation has the policy of tool calls, and is registered. Its OnFailure defaults to
	// [semel.RetryFailure] unless it is Financial: a tool that reports an error runs again.
	Operation semel.Operation
	// Upstream is the URL of the server's endpoint.
	Upstream *url.URL
	// Path is where the gateway is mounted, such as /mcp. Defaults to the root.
	Path string
	// Tools have what a tool's name alone doesn't say. A tool that isn't there is guarded by
	// Operation.
	Tools map[string]Tool
	// TrustHints lets the calls of tools pass that the server calls read-only in tools/list.
	TrustHints bool
	// Origins name the web pages that may use the gateway, such as https://app.example.
	// Pages of the gateway's own host may always, unless it is this machine under a strange
	// name.
	Origins []string
	// Identify tells who sends a request. Defaults to that of the guard.
	Identify func(r *http.Request) (semelhttp.Caller, error)
	// Answers say what the server's answers mean, in place of the table of package judge. A
	// stream is judged by its head.
	Answers judge.Answers
	// Forward says how requests are forwarded. Its Upstream, Route and Mode aren't used.
	Forward semelproxy.Options
	// MaxBody is the largest request, in bytes. Defaults to 4 MiB.
	MaxBody int64
	// MaxStream is the largest event stream that the gateway records while it passes, in bytes;
	// duplicates of a larger one get its last event alone. Negative: none. Defaults to 4 MiB.
	MaxStream int64
	// Timeout is how long a tool may be silent. Defaults to 10 minutes.
	Timeout time.Duration
	// Wait is how long a duplicate waits for a call that is under way. Defaults to Timeout.
	Wait time.Duration
	// Echo is how long a call without a key and without [Tool].Fields is recognised after its
	// answer was lost: the next call of the same caller, tool and arguments repeats it. To be able
	// to tell that an answer arrived, put the server behind [semelproxy.Strict]. Negative: such
	// calls always run. Defaults to 2 minutes.
	Echo time.Duration
	// Attributes go into a call's record, by name, and people find it by them. Each is
	// json:/POINTER of the arguments, such as json:/order_id, or header:NAME.
	Attributes map[string]string
	// Attrs tell this gateway from others in log lines.
	Attrs []slog.Attr
}

// Gateway is a reverse proxy in front of one server. Each tool call reaches the server at most
// once. It is stateless: any number may stand before a server on one store. It may be used
// concurrently.
//
// Whoever can't be identified gets nothing. Semel's own refusals are errors of JSON-RPC if the
// request is at fault, and otherwise results with isError, which a model reads.
type Gateway struct {
	engine   *semel.Engine
	runner   *door.Runner
	opts     GatewayOptions
	upstream url.URL
	proxy    *semelproxy.Proxy
	names    *extract.Names
	plain    *policy            // of tools without one of their own
	tools    map[string]*policy // by name
	seen     toolcall.Catalogue
	echoes   *echoes  // nil: there is no window
	flights  sync.Map // of conversations in the versions before Modern, by flightOf

	background background.Group // followers of tasks
	closing    context.Context
	stop       context.CancelFunc
}

// NewGateway makes a gateway on the engine of a guard, with the guard's runner and callers,
// and registers its operations.
func NewGateway(callers *semelhttp.Guard, opts GatewayOptions) (*Gateway, error) {
	if callers == nil || opts.Upstream == nil {
		return nil, errors.New("mcp: a gateway needs a guard and an Upstream")
	}
	if opts.Identify == nil {
		opts.Identify = callers.Caller
	}
	g, err := newGateway(callers.Engine(), callers.Runner(), opts)
	if err != nil {
		return nil, err
	}
	if g.opts.Echo > 0 {
		g.echoes = newEchoes(g.engine, g.opts.Echo)
	}
	g.upstream = *opts.Upstream
	forward := opts.Forward
	forward.Upstream, forward.Attrs = opts.Upstream, opts.Attrs
	forward.Route = semelhttp.Route{Operation: semel.Operation{Name: opts.Operation.Name}, Timeout: g.opts.Timeout, Answers: opts.Answers}
	if g.proxy, err = semelproxy.NewSender(callers, forward); err != nil {
		return nil, err
	}
	return g, nil
}

// newGateway has what doesn't depend on where the server is, and registers the operations.
func newGateway(engine *semel.Engine, runner *door.Runner, opts GatewayOptions) (*Gateway, error) {
	opts.MaxBody, opts.Timeout = cmp.Or(opts.MaxBody, DefaultMaxBody), cmp.Or(opts.Timeout, DefaultTimeout)
	opts.MaxStream = cmp.Or(opts.MaxStream, semelhttp.DefaultMaxStream)
	opts.Wait, opts.Echo = cmp.Or(opts.Wait, opts.Timeout), cmp.Or(opts.Echo, DefaultEcho)
	if opts.MaxBody < 0 || opts.Timeout < 0 || opts.Wait < 0 {
		return nil, errors.New("mcp: MaxBody, Timeout and Wait may not be negative")
	}
	names, err := extract.NewNames(Name, opts.Attributes)
	if err != nil {
		return nil, fmt.Errorf("mcp: Attributes: %w", err)
	}
	g := &Gateway{engine: engine, runner: runner, opts: opts, names: names, tools: map[string]*policy{}}
	g.closing, g.stop = context.WithCancel(context.Background())
	return g, g.declare()
}

// Interrupt cancels the calls that are under way. Their outcomes are unknown then.
func (g *Gateway) Interrupt() {
	g.stop()
	g.proxy.Interrupt()
}

// Close ends the following of tasks, and closes unused connections to the server. News of answers
// that arrived is the engine's work: its Close waits until the store has it.
func (g *Gateway) Close() {
	g.stop()
	_ = g.background.Close(context.Background()) // it ends when they do
	g.proxy.Close()
}

// ServeHTTP handles one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	door.Tell(r.Context(), g.engine.Internal(), Name, r.Header, func(ctx context.Context) (semel.Delivered, bool) {
		if ctx != r.Context() {
			r = r.WithContext(ctx)
		}
		e, answered := g.serve(w, r)
		e.ID.Operation, e.Attrs = cmp.Or(e.ID.Operation, g.opts.Operation.Name), g.opts.Attrs
		return e, answered
	})
}

// serve answers a request, and returns the event about that. It reports false if the request
// has passed.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) (e semel.Delivered, answered bool) {
	req := g.onward(r)
	refuse := func(f refusal) (semel.Delivered, bool) {
		f.write(w, req)
		e.Code = f.code
		return e, true
	}
	bare := r.Method == http.MethodGet || r.Method == http.MethodDelete
	switch path := r.URL.Path; {
	case path != g.opts.Path && path != strings.TrimSuffix(g.opts.Path, "/")+"/":
		return refuse(refusalFor(semel.CodeNotFound))
	case !network.OwnPage(r, g.opts.Origins):
		f := refusalFor(semel.CodeForbidden)
		f.detail = "Pages of this origin may not use the gateway. Nothing was sent on."
		return refuse(f)
	case bare && (r.Header.Get(versionHeader) >= Modern || r.ContentLength != 0), !bare && r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		return refuse(refusalFor(door.CodeMethodNotAllowed))
	case !bare && !body.IsJSON(r.Header):
		return refuse(refusalFor(door.CodeUnsupportedMedia))
	}
	who, err := g.opts.Identify(r)
	if err != nil {
		code, detail := semelproxy.Unidentified(err, w.Header())
		f := refusalFor(code)
		e.Err, f.detail = err, cmp.Or(detail, f.detail)
		return refuse(f)
	}
	if bare { // of an earlier version: a stream that is resumed, or the end of a session
		g.proxy.Pass(w, req.in)
		return e, false
	}
	if req.body, e.Code, err = semelproxy.ReadBody(w, r, g.opts.MaxBody); err != nil {
		if e.Code == "" {
			return e, false
		}
		return refuse(refusalFor(e.Code))
	}
	if err := req.read(); err != nil {
		return refuse(refusalOf(err, nil))
	}
	switch req.method {
	case callMethod:
		return g.guard(w, req, who)
	case listMethod:
		if answered = g.list(w, req); answered {
			e.Code = door.CodeUnreachable
		}
		return e, answered
	case cancelledMethod:
		if g.cancelled(req, &who) {
			w.WriteHeader(http.StatusAccepted)
			return e, true
		}
	}
	g.proxy.Pass(w, body.With(r.Context(), req.in, req.body))
	return e, false
}

// guard answers a tool call.
func (g *Gateway) guard(w http.ResponseWriter, req *request, who semelhttp.Caller) (e semel.Delivered, answered bool) {
	c := conversation{Gateway: g, req: req, who: who, Follower: relay.Follower{
		W: w, R: req.in, Takes: relay.Accepts(req.in), Wait: g.opts.Wait, Most: g.opts.Timeout / 4, Marker: replayed, Mark: markOf,
	}}
	c.Own = c.own
	switch err := c.admit(req.in.Context()); {
	case err != nil:
		f := refusalOf(err, nil)
		if e.Code = f.code; f.code == semel.CodeConfirmationRefused {
			c.refuse(f)
		} else {
			f.write(w, req)
		}
		return e, true
	case c.passes():
		g.proxy.Pass(w, body.With(req.in.Context(), req.in, req.body))
		return e, false
	}
	c.interest, c.left = context.WithCancel(req.in.Context())
	defer c.left()
	if !req.modern {
		name := flightOf(req.in, &c.who, req.id)
		g.flights.Store(name, &c)
		defer g.flights.CompareAndDelete(name, &c)
	}
	return c.converse(req.in.Context()), true
}

// onward is the request as it is sent on.
func (g *Gateway) onward(r *http.Request) *request {
	req := &request{in: r.Clone(r.Context())}
	req.in.Header.Del("Upgrade") // what goes through a tunnel, nobody guards
	req.in.URL.Path, req.in.URL.RawPath = cmp.Or(g.upstream.Path, "/"), g.upstream.RawPath
	return req
}
