package api

import (
	"cmp"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/figures"
	"github.com/semelhq/semel/internal/wire"
)

// Options configures an [API].
type Options struct {
	// Engine runs the calls. Required. Give it the events of an [Observer], so that
	// decisions are counted and streamed.
	Engine *semel.Engine
	// Observer gets the engine's events. Without one, decisions are neither counted nor
	// streamed.
	Observer *Observer
	// Figures are for GET /v1/figures. Nil: only other nodes' figures in the engine's store.
	Figures *figures.Figures
	// Evidence is the log that the endpoints on evidence read. Nil: they are refused.
	Evidence *evidence.Log
	// Identify says who calls. Its error is sent with a 401 and its [auth.Challenge], text
	// included, so it must be fit for the caller; a [semel.Error] is answered according to its code. Required.
	Identify func(*http.Request) (Caller, error)
	// Reserved reports whether an operation belongs to another door, with rules of its
	// own: its calls can neither begin nor end here. Nil: none.
	Reserved func(operation string) bool
	// Declared is how a registry declares the command of an operation; nil if it isn't one's.
	// Optional.
	Declared func(operation string) *wire.Declaration
	// Answers reports whether duplicates of a record get their answer over HTTP by a route, so
	// that it can only be settled with an HTTP answer. Nil: records that their door has
	// marked, and those of Guard.
	Answers func(rec *semel.Record) bool
	// MaySend reports whether a call may send messages to a destination. Nil allows all.
	MaySend func(call semel.ID, destination string) bool
	// Explain says what the service would do with a pasted request, given its body. Nil: POST
	// /v1/explain answers that it can't.
	Explain func(r *http.Request, body []byte) (Explained, error)
	// Attributes are the names of attributes that the service declares for its calls, by which GET
	// /v1/lookup finds them at once. Nil: it reads records for all but the common ones.
	Attributes func() []string
	// BaseURL comes before paths in problem types and Location headers, without a slash
	// at its end. Defaults to nothing, so that they are relative to the answering server.
	BaseURL string
	// Guard is the guard of routes whose records are settled with HTTP answers as well. Optional.
	Guard *semelhttp.Guard

	bounds bounds // other ones, for tests
}

// bounds are how large requests may be, and how long something may take.
type bounds struct {
	body, batch int64         // of a body and of that of a batch, in bytes
	bodyTime    time.Duration // until a body is there
	// streamTime is for one write to a reader of the stream of decisions, or of an export of
	// the evidence log, who is cut off then.
	streamTime time.Duration
	heartbeat  time.Duration // the longest silence in the stream of decisions
}

var usual = bounds{1 << 20, 16 << 20, 30 * time.Second, 5 * time.Second, 15 * time.Second}

// Role is what callers may do beyond their own calls.
type Role = auth.Role

// The roles.
const (
	NoRole   = auth.NoRole
	Viewer   = auth.Viewer
	Operator = auth.Operator
	Admin    = auth.Admin
)

// Caller is who sent a request. Roles are for verified callers, who have a Principal.
type Caller struct {
	Tenant, Principal string
	// Credential and Unproved are as in [semelhttp.Caller], if nobody verified the caller.
	Credential string
	Unproved   bool
	Role       Role
	// AllTenants makes the role one for all tenants.
	AllTenants bool
}

// who names the caller in decisions about records: all have one name where nobody verifies them.
func (c *Caller) who() string { return cmp.Or(c.Principal, "local") }

// API makes the handlers. All methods may be called concurrently.
type API struct {
	opts     Options
	engine   *semel.Engine
	observer *Observer
	data     func() *builder
	admin    func() *builder // has everything

	closing   chan struct{}
	closeOnce sync.Once
}

// New makes an API.
func New(opts Options) (*API, error) {
	if opts.Engine == nil || opts.Identify == nil {
		return nil, errors.New("api: New needs an Engine and Identify")
	}
	opts.bounds = cmp.Or(opts.bounds, usual)
	if opts.Observer == nil {
		opts.Observer = NewObserver(opts.Engine.Internal().Store())
	}
	if opts.Figures == nil {
		opts.Figures = figures.New(opts.Engine.Internal().Store(), nil)
	}
	if opts.Answers == nil {
		opts.Answers = func(rec *semel.Record) bool {
			return semelhttp.Marked(rec) || opts.Guard != nil && opts.Guard.Serves(rec.ID.Operation)
		}
	}
	a := &API{opts: opts, engine: opts.Engine, observer: opts.Observer, closing: make(chan struct{})}
	// To make one takes as long as to start the rest of a service. A listener needs only one of
	// the two.
	a.data = sync.OnceValue(func() *builder { return a.handler(false) })
	a.admin = sync.OnceValue(func() *builder { return a.handler(true) })
	return a, nil
}

// Data serves the endpoints for callers: executions, batches, their own records,
// operations. It also serves the pages that describe them. The first call makes the handler,
// which takes some milliseconds.
func (a *API) Data() http.Handler { return a.data().handler }

// Admin serves everything that Data serves, and the endpoints for people and consoles,
// which need a role. The first call makes the handler, which takes some milliseconds.
func (a *API) Admin() http.Handler { return a.admin().handler }

// OpenAPI is the description of everything that Admin serves, as JSON. Don't change it.
func (a *API) OpenAPI() []byte { return a.admin().spec() }

// Close ends the streams of decisions, which would otherwise keep a server from shutting
// down. Everything else stays in service.
func (a *API) Close() { a.closeOnce.Do(func() { close(a.closing) }) }
