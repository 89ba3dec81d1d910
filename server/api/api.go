package api

import (
	"cmp"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/transport/semelhttp"
)

// Options configures an [API].
type Options struct {
	// Engine runs the calls. Required. Its Events should include those of
	// [API.Events]; where that makes a circle, use [NewObserver] first.
	Engine *semel.Engine
	// Observer is what the engine tells its decisions to. Without one, decisions
	// are neither counted nor streamed.
	Observer *Observer
	// Identify tells who calls. An error is answered with 401 and its text, which
	// must be fit for the caller; a [semel.Error] is answered by its code. Required.
	Identify func(*http.Request) (Caller, error)
	// Challenge is the WWW-Authenticate for an error of Identify. Nil: one that asks
	// for a bearer token.
	Challenge func(error) string
	// Reserved says which operations belong to other doors, which have rules of their
	// own: here they are neither begun nor ended. Nil: none.
	Reserved func(operation string) bool
	// Answers reports whether duplicates of a record are answered over HTTP by a
	// route, so that what it is settled with has to be an HTTP answer. Nil: those of
	// records that say so.
	Answers func(rec *semel.Record) bool
	// MaySend says whether a call may send messages to a destination. Nil allows all.
	MaySend func(call semel.ID, destination string) bool
	// BaseURL comes before paths in problem types and Location headers, without a
	// slash at its end. Defaults to nothing, which makes them relative to the
	// server that answers.
	BaseURL string
	// MaxBody bounds request bodies, in bytes. Defaults to 1 MiB.
	MaxBody int64
	// MaxBatchBody bounds the bodies of batches, in bytes. Defaults to 16 MiB.
	MaxBatchBody int64
	// BodyTimeout is how long a body may take to arrive. Defaults to 30 seconds.
	BodyTimeout time.Duration
	// StreamTimeout is how long one write to a reader of the stream of decisions
	// may take before the reader is cut off. Defaults to 5 seconds.
	StreamTimeout time.Duration
	// Heartbeat is the longest silence in the stream of decisions. Defaults to 15
	// seconds.
	Heartbeat time.Duration
	// Version is that of the program, for the description of the API.
	Version string
}

// Defaults of [Options].
const (
	DefaultMaxBody       = 1 << 20
	DefaultMaxBatchBody  = 16 << 20
	DefaultBodyTimeout   = 30 * time.Second
	DefaultStreamTimeout = 5 * time.Second
	DefaultHeartbeat     = 15 * time.Second
)

// Role is what a caller may do beyond its own calls. Each includes those before.
type Role uint8

// The roles.
const (
	NoRole   Role = iota // its own calls only
	Viewer               // look at the records of its tenant
	Operator             // settle, release and purge them
	Admin                // everything
)

// String is the role's name.
func (r Role) String() string {
	return [...]string{"none", "viewer", "operator", "admin"}[min(r, Admin)]
}

// Caller is who sent a request. Roles are for verified callers, who have a Principal.
type Caller struct {
	Tenant, Principal string
	// Credential is that of [semelhttp.Caller], where nobody verified the caller.
	Credential string
	Role       Role
	// AllTenants lets an admin see and settle the records of all tenants.
	AllTenants bool
}

// API makes the handlers. All methods may be called concurrently.
type API struct {
	opts     Options
	engine   *semel.Engine
	observer *Observer
	data     http.Handler
	admin    http.Handler
	spec     []byte // of the admin handler, which has everything

	closing   chan struct{}
	closeOnce sync.Once
}

// New makes an API.
func New(opts Options) (*API, error) {
	if opts.Engine == nil || opts.Identify == nil {
		return nil, errors.New("api: New needs an Engine and Identify")
	}
	opts.MaxBody = cmp.Or(opts.MaxBody, DefaultMaxBody)
	opts.MaxBatchBody = cmp.Or(opts.MaxBatchBody, DefaultMaxBatchBody)
	opts.BodyTimeout = cmp.Or(opts.BodyTimeout, DefaultBodyTimeout)
	opts.StreamTimeout = cmp.Or(opts.StreamTimeout, DefaultStreamTimeout)
	opts.Heartbeat = cmp.Or(opts.Heartbeat, DefaultHeartbeat)
	opts.Version = cmp.Or(opts.Version, "v1")
	if opts.MaxBody < 0 || opts.MaxBatchBody < 0 || opts.BodyTimeout < 0 || opts.StreamTimeout < 0 || opts.Heartbeat < 0 {
		return nil, errors.New("api: MaxBody, MaxBatchBody, BodyTimeout, StreamTimeout and Heartbeat may not be negative")
	}
	if opts.Observer == nil {
		opts.Observer = NewObserver()
	}
	if opts.Answers == nil {
		opts.Answers = semelhttp.Marked
	}
	a := &API{opts: opts, engine: opts.Engine, observer: opts.Observer, closing: make(chan struct{})}
	var err error
	if a.data, _, err = a.handler(false); err != nil {
		return nil, err
	}
	if a.admin, a.spec, err = a.handler(true); err != nil {
		return nil, err
	}
	return a, nil
}

// Data serves the endpoints for callers: executions, batches, their own records,
// operations. It also serves the pages that describe them.
func (a *API) Data() http.Handler { return a.data }

// Admin serves what Data serves and the endpoints for people and consoles, which
// need a role.
func (a *API) Admin() http.Handler { return a.admin }

// OpenAPI is the description of everything that Admin serves, as JSON. It may not
// be changed.
func (a *API) OpenAPI() []byte { return a.spec }

// Events is [Observer.Events] of the API's observer.
func (a *API) Events() *semel.Events { return a.observer.Events() }

// Close ends the streams of decisions, which would otherwise keep a server from
// shutting down. Everything else goes on being served.
func (a *API) Close() { a.closeOnce.Do(func() { close(a.closing) }) }
