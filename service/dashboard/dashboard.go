package dashboard

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/figures"
	"github.com/semelhq/semel/service/admin"
)

// Options configures a [Dashboard].
type Options struct {
	// API answers everything that isn't the dashboard's own: /v1/ as [api.API.Admin] does,
	// and /readyz, /openapi.json, /docs and /problems/ where there are such. Required.
	API http.Handler
	// Identify says who sent a request, as that of [api.Options] does; best the same
	// function. Required.
	Identify func(*http.Request) (api.Caller, error)
	// SignIn shows a form for a bearer token to whom Identify doesn't know, and keeps the
	// token in a session. Leave it out if your program signs people in by itself.
	SignIn bool
	// Prefix is the path where you mount the handler, without a slash at its end, such as
	// "/admin/semel". Defaults to none.
	Prefix string
	// ReadOnly refuses whatever would change something, whoever asks.
	ReadOnly bool
	// The page shows Name at the top, so that nobody takes one installation for another: "prod".
	Name string
	// Version is that of the program, and Node names the process that answers, for people.
	Version, Node string
	// Evidence shows the screen Evidence, which reads /v1/evidence/ of the API.
	Evidence bool
}

// Dashboard serves the page, its session, and the API behind it, also concurrently.
type Dashboard struct {
	opts     Options
	sessions *sessions // nil: nobody signs in here
	handler  http.Handler
	// answering has the users with an answer being decoded.
	answering sync.Map
}

// New makes a dashboard. Requests from other origins that would change something are
// refused.
func New(opts Options) (*Dashboard, error) {
	switch p := opts.Prefix; {
	case opts.API == nil || opts.Identify == nil:
		return nil, errors.New("dashboard: New needs an API and Identify")
	case p != "" && (!strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/")):
		return nil, fmt.Errorf("dashboard: the prefix %q does not begin with a slash, or ends with one", p)
	}
	opts.Version = cmp.Or(opts.Version, "unknown")
	d := &Dashboard{opts: opts}
	mux := http.NewServeMux()
	assets(mux)
	mux.HandleFunc("GET /ui/session", d.serveSession)
	mux.HandleFunc("POST /ui/answer", d.role(api.Viewer, d.serveAnswer))
	mux.Handle("/", d.readOnly(opts.API))
	var h http.Handler = mux
	if opts.SignIn {
		d.sessions = &sessions{path: opts.Prefix + "/", now: time.Now, open: map[[sha256.Size]byte]session{}}
		mux.HandleFunc("POST /ui/session", d.role(api.Viewer, d.signIn))
		mux.HandleFunc("DELETE /ui/session", d.sessions.end)
		h = d.sessions.resume(h)
	}
	d.handler = http.NewCrossOriginProtection().Handler(http.StripPrefix(opts.Prefix, h))
	return d, nil
}

// ServeHTTP serves the dashboard below its prefix.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// Engine configures the dashboard of a program with an engine of its own.
type Engine struct {
	// Authorize says who sent a request and what they may do. Its error is
	// sent with a 401, text included. Required: whoever gets through can decide whether a
	// payment happened. It may go by your program's own session cookie: requests of other
	// origins that would change something are refused before it's asked.
	Authorize func(r *http.Request) (admin.Caller, error)
	// Observer gets the engine's events, for the live tail and for what duplicates got. It
	// must be the one in the engine's options. Nil: there is neither.
	Observer *Observer
	// Figures are what the overview shows over all nodes, and what lists these. Their events
	// must be in the engine's options, and their Run has to run. Nil: it shows what this node's last events
	// give, if there is an Observer.
	Figures *Figures
	// Guard is the guard of your routes, so that calls of its operations are settled with
	// HTTP answers. Optional.
	Guard *semelhttp.Guard
	// Evidence is the log that the screen Evidence shows. Nil: there is no such screen.
	Evidence *evidence.Log
	// Prefix, ReadOnly, Name and Version are those of [Options].
	Prefix, Name, Version string
	ReadOnly              bool
}

// ForEngine makes the dashboard of a program's own engine.
func ForEngine(engine *semel.Engine, opts Engine) (*Dashboard, error) {
	if opts.Authorize == nil {
		return nil, errors.New("dashboard: ForEngine needs Engine.Authorize: without it anybody could settle a call")
	}
	identify := func(r *http.Request) (api.Caller, error) {
		c, err := opts.Authorize(r)
		if err == nil && c.Role < api.Viewer {
			err = errors.New("the caller has no role here")
		}
		return c, err
	}
	a, err := api.New(api.Options{
		Engine: engine, Observer: opts.Observer, Figures: opts.Figures, Identify: identify, BaseURL: opts.Prefix, Evidence: opts.Evidence, Guard: opts.Guard,
	})
	if err != nil {
		return nil, err
	}
	// Your program runs its calls itself: nobody begins one through its page for operators.
	mux := http.NewServeMux()
	paths := []string{"/v1/records", "/v1/records/", "GET /v1/lookup", "/problems/", "GET /v1/operations", "GET /v1/operations/{operation}", "POST /v1/explain", "GET /openapi.json", "GET /docs/"}
	if opts.Observer != nil {
		paths = append(paths, "GET /v1/decisions", "GET /v1/conflicts")
	}
	if opts.Figures != nil {
		paths = append(paths, "GET /v1/figures", "GET /v1/nodes")
		opts.Figures.Announce(engine.Internal().Node(), opts.Version)
	}
	if opts.Evidence != nil {
		paths = append(paths, "GET /v1/evidence/checkpoint", "GET /v1/evidence/entries", "POST /v1/evidence/verify")
	}
	for _, path := range paths {
		mux.Handle(path, a.Admin())
	}
	return New(Options{
		API: mux, Identify: identify, Prefix: opts.Prefix, ReadOnly: opts.ReadOnly, Name: opts.Name, Version: opts.Version, Node: engine.Internal().Node(), Evidence: opts.Evidence != nil,
	})
}

func (d *Dashboard) readOnly(next http.Handler) http.Handler {
	if !d.opts.ReadOnly {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.URL.Path == "/v1/explain" || r.URL.Path == "/v1/evidence/verify"
		if r.Method != http.MethodGet && r.Method != http.MethodHead && !reads {
			refuse(w, semel.CodeForbidden, "This dashboard is read-only.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (d *Dashboard) role(least api.Role, next func(http.ResponseWriter, *http.Request, *api.Caller)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := d.opts.Identify(r)
		switch {
		case err != nil:
			code := door.CodeUnauthorized
			if e, ok := errors.AsType[*semel.Error](err); ok { // the caller can't be identified now
				code = e.Code
			}
			refuse(w, code, problem.Sentence(err.Error()))
		case caller.Role < least:
			refuse(w, semel.CodeForbidden, "This needs the role "+least.String()+", and yours is "+caller.Role.String()+".")
		default:
			next(w, r, &caller)
		}
	}
}

type self struct {
	Caller   *person `json:"caller"`
	Why      string  `json:"why,omitempty"` // there is no caller
	SignIn   bool    `json:"sign_in"`       // there is a form for a token
	SignedIn bool    `json:"signed_in"`     // by that form
	ReadOnly bool    `json:"read_only"`
	Evidence bool    `json:"evidence"`
	Name     string  `json:"name"`
	Version  string  `json:"version"`
	Node     string  `json:"node"`
}

type person struct {
	Principal  string `json:"principal"`
	Tenant     string `json:"tenant"`
	Role       string `json:"role"`
	AllTenants bool   `json:"all_tenants"`
}

// serveSession says who the user is. An unknown one gets an answer, too: the page has to
// show a form, or why it shows nothing.
func (d *Dashboard) serveSession(w http.ResponseWriter, r *http.Request) {
	me := self{
		SignIn: d.sessions != nil, SignedIn: d.sessions != nil && r.Context().Value(signedInKey{}) != nil, ReadOnly: d.opts.ReadOnly,
		Evidence: d.opts.Evidence, Name: d.opts.Name, Version: d.opts.Version,
	}
	c, err := d.opts.Identify(r)
	switch {
	case err != nil:
		me.Why = problem.Sentence(err.Error())
	case c.Role < api.Viewer:
		me.Why = "You have no role here: ask for the role viewer."
	default:
		me.Node = d.opts.Node
		me.Caller = &person{c.Principal, c.Tenant, c.Role.String(), c.AllTenants}
	}
	reply(w, me)
}

// signIn opens a session for the bearer of the token in the Authorization header. No page
// of another origin can send that header without asking first.
func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request, c *api.Caller) {
	authorization := r.Header.Get("Authorization")
	if authorization == "" {
		refuse(w, door.CodeUnauthorized, "There is no token in the Authorization header.")
		return
	}
	reply(w, map[string]string{"session": d.sessions.begin(w, r, authorization, user{c.Tenant, c.Principal})})
}

// maxAnswer bounds an answer that is to be taken apart, in bytes: that takes up to 26 times
// as much memory. Larger ones the page offers as they are.
const maxAnswer = 1 << 20

type answer struct {
	Status  int         `json:"status"`
	Headers http.Header `json:"headers"`
	Body    string      `json:"body"` // as text, or in base64
	Binary  bool        `json:"binary"`
}

// serveAnswer decodes the recorded answer, in a form that only this program knows: one at a time for each user, who may see records.
func (d *Dashboard) serveAnswer(w http.ResponseWriter, r *http.Request, c *api.Caller) {
	of := user{c.Tenant, c.Principal}
	if _, busy := d.answering.LoadOrStore(of, true); busy {
		problem.RetryAfter(w.Header(), time.Second)
		refuse(w, door.CodeOverloaded, "Another answer is taken apart for you. Ask again.")
		return
	}
	defer d.answering.Delete(of)
	data, err := body.Read(w, r, maxAnswer)
	if err != nil {
		refuse(w, door.CodeTooLarge, "The result is too large to be taken apart, or broke off.")
		return
	}
	kept, ok := semelhttp.ParseAnswer(semel.Result{Data: data})
	if !ok {
		refuse(w, semel.CodeInvalidCall, "The result isn't an HTTP answer.")
		return
	}
	a := answer{Status: kept.Status, Headers: kept.Header, Body: string(kept.Body)}
	if a.Binary = !utf8.Valid(kept.Body); a.Binary {
		a.Body = base64.StdEncoding.EncodeToString(kept.Body)
	}
	reply(w, a)
}

// Observer keeps the newest decisions of an engine for the live page, and counts the answers
// that duplicates of a call got. Add its Events to the engine's, and close it before the
// store. It may be used concurrently.
type Observer = api.Observer

// NewObserver makes the observer of an engine on a store.
func NewObserver(st semel.Store) *Observer { return api.NewObserver(st) }

// Figures count deliveries over all nodes of a store. Add their Events to the engine's and
// call Run. They may be used concurrently.
type Figures = figures.Figures

// NewFigures makes the figures of one node.
func NewFigures(st semel.Store) *Figures { return figures.New(st, nil) }
