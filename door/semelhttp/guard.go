package semelhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/credential"
	"github.com/semelhq/semel/internal/extract"
	"github.com/semelhq/semel/internal/payload"
	"github.com/semelhq/semel/safehttp"
)

// Options configures a [Guard]. The zero value, and nil, mean the documented
// defaults.
type Options struct {
	// Identity says who sent a request. Without it Route.Credential tells callers apart, and a
	// caller who renews a credential between two tries of a call gets a refusal instead of the
	// answer; see [Caller.Name].
	Identity IdentityFunc
	// Challenge is the WWW-Authenticate of a 401. Defaults to Bearer.
	Challenge string
	// Advice is the last sentence of a 401 to a request without a credential, for the people
	// who run the service. Defaults to how a Go program lets such requests in.
	Advice string
	// StatusPath is where you mount the status resource, such as "/semel/status/", or an
	// absolute URL. It ends with a slash. Refusals then link to it. Defaults to empty: no
	// links.
	StatusPath string
	// TypeBase comes before the code in a problem's type. Defaults to "urn:semel:problem:".
	TypeBase string
	// TempDir holds bodies of more than 64 KiB while their request is handled. Defaults to
	// [os.TempDir].
	TempDir string
}

// Guard wraps handlers for one engine. Its answers and errors go to the engine's Events
// (see Answered and Troubled of [semel.Events]). All methods may be called concurrently.
type Guard struct {
	engine *semel.Engine
	runner *door.Runner
	opts   Options
	plain  handler       // of a route with the defaults; identifies callers outside of any route
	large  chan struct{} // slots for parsing large bodies

	mu       sync.Mutex
	declared map[string]bool     // operations that a route has declared, not just named
	handlers map[string]*handler // the first of each operation
}

// New makes a guard on an engine. Options may be nil.
func New(engine *semel.Engine, opts *Options) (*Guard, error) {
	if engine == nil {
		return nil, errors.New("semelhttp: New needs an engine")
	}
	g := &Guard{engine: engine, declared: map[string]bool{}, handlers: map[string]*handler{}, large: make(chan struct{}, runtime.GOMAXPROCS(0))}
	if opts != nil {
		g.opts = *opts
	}
	g.opts.Challenge = cmp.Or(g.opts.Challenge, "Bearer")
	g.opts.Advice = cmp.Or(g.opts.Advice, "If you run this service, set Options.Identity or Route.Anonymous; tests of handlers have package semelhttptest.")
	g.opts.TypeBase = cmp.Or(g.opts.TypeBase, "urn:semel:problem:")
	if p := g.opts.StatusPath; p != "" && !strings.HasSuffix(p, "/") {
		return nil, fmt.Errorf("semelhttp: StatusPath %q does not end with a slash", p)
	}
	g.plain = newHandler(g, Route{}.withDefaults(), semel.Operation{})
	g.runner = door.NewRunner(engine)
	return g, nil
}

// Runner returns the guard's runner. Other doors of the program can share it, so that
// [Guard.Close] waits for their calls, too.
func (g *Guard) Runner() *door.Runner { return g.runner }

// Close waits until all outcomes are recorded that are still being retried, or ctx is done.
// Call it after you have shut down the server.
func (g *Guard) Close(ctx context.Context) error { return g.runner.Close(ctx) }

// Handle wraps next under a route. The error names everything that is wrong with the route.
// Call it once for each handler when the program starts, or use [Guard.Middleware] to wrap more
// often.
func (g *Guard) Handle(rt Route, next http.Handler) (http.Handler, error) {
	if next == nil {
		return nil, errNoHandler
	}
	h, err := g.declare(rt)
	if err != nil {
		return nil, err
	}
	return h.around(next), nil
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

// Middleware makes the guard of a route a middleware, which wraps any number of handlers
// under the one operation. It panics if something is wrong with the route. Make it once,
// when the program starts: its function only wraps, and may be called for each request.
//
//	r.With(g.Middleware(route)).Post("/charges", charge) // a router such as chi
//
// Operation and key tell calls apart, so give handlers that do different things a route
// each.
func (g *Guard) Middleware(rt Route) func(http.Handler) http.Handler {
	h, err := g.declare(rt)
	if err != nil {
		panic(err)
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic(errNoHandler)
		}
		return h.around(next)
	}
}

var errNoHandler = errors.New("semelhttp: a guard needs a handler to wrap")

// declare checks a route and registers its operation.
func (g *Guard) declare(rt Route) (*handler, error) {
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
		return nil, fmt.Errorf("semelhttp: operation %q is declared by two routes; give the second only its name. If you wrap a handler for each request, make a Middleware once instead", op.Name)
	}
	if op.Sequenced != (rt.Sequence != "") {
		return nil, rt.wrongSequence(&op)
	}
	registered, _ := g.engine.Internal().Operation(op.Name)
	if !reflect.DeepEqual(op, registered) {
		if err := g.engine.Register(op); err != nil {
			return nil, fmt.Errorf("semelhttp: %w", err)
		}
		registered, _ = g.engine.Internal().Operation(op.Name)
	}
	g.declared[op.Name] = true
	op = registered
	h := newHandler(g, rt, op)
	if g.handlers[op.Name] == nil {
		g.handlers[op.Name] = &h
	}
	return &h, nil
}

// around returns the handler that guards next. The declared one has no next and stays with the
// guard, so the guard keeps no wrapped handler alive.
func (h *handler) around(next http.Handler) *handler {
	guarded := *h
	guarded.next = next
	return &guarded
}

// reportError reports an error that no caller gets.
func (g *Guard) reportError(err error) { g.engine.Internal().Troubled(door.NotRecorded(Name, err)) }

// handler is one guarded handler, or a declared route without one.
type handler struct {
	guard *Guard
	route Route
	next  http.Handler

	operation string
	maxResult int
	onFailure semel.AfterFailure
	share     semel.Share

	credentials credential.Set
	rules       judge.Rules
	keepPayload bool
	extract     *extract.Rule
	ownKey      bool // the route says where its keys are, or makes them
	learns      bool // it has attributes from answers
	payload     payload.Rule

	warned, silent *atomic.Bool // late answers, and missing answers, were reported
}

// newHandler makes a handler for a valid route and its operation.
func newHandler(g *Guard, rt Route, op semel.Operation) handler {
	rule, _ := rt.extract() // it was checked
	return handler{
		extract: rule, ownKey: rule.Key(), learns: rule.InAnswers(), keepPayload: op.KeepPayload, guard: g, route: rt, credentials: credential.New(rt.Credential),
		payload: payload.Rule{
			Mode: payload.Mode(rt.Body), Headers: rt.FingerprintHeaders, Parts: rule.Compared(), Keyless: rule.Keyless(),
			Max: rt.MaxBody, TempDir: g.opts.TempDir, Large: g.large,
		},
		operation: op.Name, warned: new(atomic.Bool), silent: new(atomic.Bool), maxResult: op.MaxResult, onFailure: op.OnFailure, share: op.Share,
		rules: rt.Rules(op.Financial),
	}
}

// Rules returns the rules for judging the answers to a route's requests. financial says that
// they move money. The route must be valid.
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
