package semelhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/transport/judge"
	"github.com/semelhq/semel/transport/safehttp"
)

// Options configures a [Guard]. The zero value, and nil, mean the documented
// defaults.
type Options struct {
	// Identity says who sent a request. Without it callers are told apart by what
	// Route.Credential names, and somebody whose credential was renewed between two tries
	// of a call gets a refusal instead of the answer; see [Caller.Name].
	Identity IdentityFunc
	// Challenge is the WWW-Authenticate of a 401. Defaults to Bearer.
	Challenge string
	// Advice is the last sentence of a 401 to a request without a credential, for those
	// who run the service. Defaults to how a Go program lets such requests in.
	Advice string
	// StatusPath is where you mount the status resource, such as "/semel/status/", or an
	// absolute URL. It ends with a slash. Refusals then link to it. Defaults to empty: no
	// links.
	StatusPath string
	// TypeBase precedes the code in the type of a problem. Defaults to
	// "urn:semel:problem:".
	TypeBase string
	// TempDir is where bodies of more than 64 KiB are kept while their request
	// is handled. Defaults to [os.TempDir].
	TempDir string
}

// Guard wraps handlers for one engine, whose Events get what it has answered and met (see
// Answered and Troubled of [semel.Events]). All methods may be called concurrently.
type Guard struct {
	engine *semel.Engine
	runner *door.Runner
	opts   Options
	plain  handler       // of a route with the defaults; identifies callers outside of any route
	large  chan struct{} // slots for parsing large bodies
	grants grants

	mu       sync.Mutex
	declared map[string]bool // operations that a route has declared, not only named
	handlers []*handler
}

// New makes a guard on an engine. Options may be nil.
func New(engine *semel.Engine, opts *Options) (*Guard, error) {
	if engine == nil {
		return nil, errors.New("semelhttp: New needs an engine")
	}
	g := &Guard{engine: engine, declared: map[string]bool{}, large: make(chan struct{}, runtime.GOMAXPROCS(0))}
	if opts != nil {
		g.opts = *opts
	}
	g.opts.Challenge = cmp.Or(g.opts.Challenge, "Bearer")
	g.opts.Advice = cmp.Or(g.opts.Advice, "If you run this service, set Options.Identity or Route.Anonymous; tests of handlers have package semelhttptest.")
	g.opts.TypeBase = cmp.Or(g.opts.TypeBase, "urn:semel:problem:")
	if p := g.opts.StatusPath; p != "" && !strings.HasSuffix(p, "/") {
		return nil, fmt.Errorf("semelhttp: StatusPath %q does not end with a slash", p)
	}
	g.plain = newHandler(g, Route{}.withDefaults(), semel.Operation{}, nil)
	g.runner = door.NewRunner(engine)
	return g, nil
}

// Runner runs the calls of the guard. Other doors of the program can share it, so that
// [Guard.Close] waits for theirs as well.
func (g *Guard) Runner() *door.Runner { return g.runner }

// Close waits until every outcome is recorded that could not be recorded at once, or ctx
// is done. Call it after you have shut down the server.
func (g *Guard) Close(ctx context.Context) error { return g.runner.Close(ctx) }

// Handle wraps next under a route. The error names everything that is wrong with the
// route.
func (g *Guard) Handle(rt Route, next http.Handler) (http.Handler, error) {
	if next == nil {
		return nil, errors.New("semelhttp: Handle needs a handler")
	}
	rt = rt.withDefaults()
	if err := rt.validate(); err != nil {
		return nil, err
	}
	if rt.Tx != nil {
		if err := rt.Tx.Check(g.engine); err != nil {
			return nil, fmt.Errorf("semelhttp: route for operation %q: Tx: %w", rt.Operation.Name, err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	op, known := rt.operation(g.engine)
	if g.declared[op.Name] && !known {
		return nil, fmt.Errorf("semelhttp: operation %q is declared by two routes; give the second only its name", op.Name)
	}
	if err := rt.checkSequence(&op); err != nil {
		return nil, err
	}
	if err := g.engine.Register(op); err != nil {
		return nil, fmt.Errorf("semelhttp: %w", err)
	}
	g.declared[op.Name] = true
	op, _ = g.engine.Door().Operation(op.Name)
	h := newHandler(g, rt, op, next)
	g.handlers = append(g.handlers, &h)
	return &h, nil
}

// Handler is Handle for routes written in your program: it panics instead of returning an
// error.
func (g *Guard) Handler(rt Route, next http.Handler) http.Handler {
	h, err := g.Handle(rt, next)
	if err != nil {
		panic(err)
	}
	return h
}

// reportError tells of an error that no caller gets.
func (g *Guard) reportError(err error) { g.engine.Door().Troubled(door.NotRecorded(Door, err)) }

// handler is one guarded handler.
type handler struct {
	guard *Guard
	route Route
	next  http.Handler

	operation string
	maxResult int
	onFailure semel.AfterFailure
	share     semel.Share

	credentials credentials
	rules       judge.Rules
	keepPayload bool
	picks       *picks // nil: the key is that of the header, and nothing else is selected

	warned *atomic.Bool // the default log says that its answers come too late
}

// newHandler makes a handler from a checked route and its operation.
func newHandler(g *Guard, rt Route, op semel.Operation, next http.Handler) handler {
	picks, _ := rt.picks() // it was checked
	return handler{
		picks: picks, keepPayload: op.KeepPayload, guard: g, route: rt, next: next, credentials: newCredentials(rt.Credential),
		operation: op.Name, warned: new(atomic.Bool), maxResult: op.MaxResult, onFailure: op.OnFailure, share: op.Share,
		rules: rt.Rules(op.Financial),
	}
}

// Rules are those by which the answers to a route's requests are judged, whose work moves
// money if financial says so. The route must be valid.
func (rt Route) Rules(financial bool) judge.Rules {
	answers, _ := rt.Answers.Parse()
	contract, _ := rt.Profile.Answers.Parse()
	return judge.Rules{
		Own: !rt.Forwards, Financial: financial, RolledBack: rt.Tx != nil,
		Answers: answers, Contract: contract, RetryHeader: rt.Profile.RetryHeader,
	}
}

// guards reports whether requests of a method are guarded.
func (h *handler) guards(method string) bool {
	if h.route.Methods == nil {
		return !safehttp.SafeMethod(method)
	}
	return slices.Contains(h.route.Methods, method)
}
