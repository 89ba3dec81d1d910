package commerce

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	rules "github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/commerce/datasync"
	"github.com/semelhq/semel/commerce/session"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/shield"
)

// Name is the name of the door in events.
const Name = "commerce"

// RightUsers is the right of a caller who acts for users, such as a back end: to name a user,
// to settle payments, and to read and write entities.
const RightUsers = "commerce.users"

// DefaultMaxBody is the default of [Options].MaxBody.
const DefaultMaxBody = 1 << 20

// Caller is the verified sender of a request.
type Caller struct {
	// Tenant and Principal come from the credential. The principal is a user, too.
	Tenant, Principal string
	// Rights may have [RightUsers].
	Rights []string
}

// acts reports whether the caller acts for users.
func (c *Caller) acts() bool { return slices.Contains(c.Rights, RightUsers) }

// Options configure a [Service].
type Options struct {
	// Path is where the service is mounted, such as /commerce. Required.
	Path string
	// Identify verifies who sends a request. The caller doesn't see its error; one with
	// [semel.CodeStoreUnavailable] gets 503, any other 401. Required.
	Identify func(r *http.Request) (Caller, error)
	// Challenge is the WWW-Authenticate for an error of Identify. Defaults to Bearer.
	Challenge func(error) string
	// Keys encrypt stored tokens. Without them there are no sessions.
	Keys *session.Keyring
	// Token makes the token of a new session; see [session.Login]. Defaults to a random one.
	Token func(ctx context.Context, s session.Session) ([]byte, error)
	// SessionLifetime, CartLifetime and IntentLifetime have the defaults of the packages.
	SessionLifetime, CartLifetime, IntentLifetime time.Duration
	// Charge and Ask are for [rules.PaymentOptions]. Without Charge there are no payments.
	Charge func(ctx context.Context, c rules.Charge) (rules.Charged, error)
	Ask    func(ctx context.Context, key string) (rules.Told, error)
	// Origin, Apply and Send are for [datasync.Options]. Without Apply there are no entities.
	Origin string
	Apply  func(ctx context.Context, s datasync.State) error
	Send   func(ctx context.Context, c datasync.Change) error
	// MaxBody bounds request bodies, in bytes. Defaults to [DefaultMaxBody].
	MaxBody int64
	// TypeBase precedes the code in the type of a problem. Defaults to "/problems/".
	TypeBase string
}

// Service is the door. Make one with [New]; its methods may be called concurrently.
type Service struct {
	engine   *semel.Engine
	opts     Options
	sessions *session.Manager // nil: there are none
	mandates *rules.Mandates
	payments *rules.Payments   // nil: there are none
	replica  *datasync.Replica // nil: there are none
}

// New makes a service and registers the operations of its packages with the engine.
func New(engine *semel.Engine, opts Options) (*Service, error) {
	if opts.Identify == nil || !strings.HasPrefix(opts.Path, "/") {
		return nil, errors.New("commerce: Identify or Path is missing")
	}
	opts.Path = strings.TrimSuffix(opts.Path, "/")
	opts.MaxBody, opts.TypeBase = cmp.Or(opts.MaxBody, DefaultMaxBody), cmp.Or(opts.TypeBase, "/problems/")
	if opts.Token == nil {
		opts.Token = random
	}
	s := &Service{engine: engine, opts: opts}
	var err error
	if opts.Keys != nil {
		if s.sessions, err = session.New(engine, session.Options{Keys: opts.Keys, Lifetime: opts.SessionLifetime}); err != nil {
			return nil, err
		}
	}
	if s.mandates, err = rules.NewMandates(engine, rules.MandateOptions{CartLifetime: opts.CartLifetime, IntentLifetime: opts.IntentLifetime}); err != nil {
		return nil, err
	}
	if opts.Charge != nil {
		// The gateway stands behind the program that charges, which sees the payment's own key.
		if s.payments, err = rules.NewPayments(engine, rules.PaymentOptions{
			Gateway: shield.Provider{Name: "gateway", Header: "Idempotency-Key"}, Charge: opts.Charge, Ask: opts.Ask, Mandates: s.mandates,
		}); err != nil {
			return nil, err
		}
	}
	if opts.Apply != nil {
		if s.replica, err = datasync.New(engine, datasync.Options{Origin: opts.Origin, Apply: opts.Apply, Send: opts.Send}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Destination is that of the messages that [Service.Work] takes; empty if there are none.
func (s *Service) Destination() string {
	if s.replica == nil {
		return ""
	}
	return s.replica.Destination()
}

// Work applies and sends a state of an entity; see [datasync.Replica.Work].
func (s *Service) Work(ctx context.Context, payload []byte) error {
	return s.replica.Work(ctx, payload)
}

// Declares reports whether an operation is the service's own.
func (s *Service) Declares(operation string) bool { return strings.HasPrefix(operation, "commerce.") }

// endpoint is one of the addresses. In its pattern * stands for any one segment.
type endpoint struct {
	method, pattern string
	serve           func(q *request) (any, error)
}

// endpoints lists the addresses below the path, see the package.
var endpoints = []endpoint{
	{"POST", "sessions", (*request).beginSession},
	{"GET", "sessions", (*request).listSessions},
	{"GET", "sessions/*", (*request).getSession},
	{"DELETE", "sessions/*", (*request).endSession},
	{"POST", "mandates", (*request).makeMandate},
	{"GET", "mandates/*", (*request).getMandate},
	{"DELETE", "mandates/*", (*request).endMandate},
	{"POST", "payments", (*request).pay},
	{"GET", "payments/*", (*request).getPayment},
	{"POST", "payments/*/reconcile", (*request).reconcile},
	{"POST", "entities/*/changes", (*request).takeChange},
	{"PUT", "entities/*/*", (*request).putEntity},
	{"GET", "entities/*/*", (*request).getEntity},
}

// matches fills in what stands where the pattern has a star.
func (e *endpoint) matches(segments []string) (values []string, ok bool) {
	pattern := strings.Split(e.pattern, "/")
	if len(pattern) != len(segments) {
		return nil, false
	}
	for i, p := range pattern {
		switch {
		case p == "*":
			values = append(values, segments[i])
		case p != segments[i]:
			return nil, false
		}
	}
	return values, true
}

// ServeHTTP serves the addresses of the package. Requests that change something are in the
// engine's Events.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &request{Service: s, w: w, r: r, status: http.StatusOK}
	serve, err := q.find()
	if err != nil || r.Method == http.MethodGet {
		q.answer(serve, err)
		return
	}
	door.Tell(r.Context(), s.engine.Internal(), Name, r.Header, func(ctx context.Context) (semel.Delivered, bool) {
		q.r = r.WithContext(ctx)
		ours := q.answer(serve, nil)
		return q.event, ours
	})
}

// find finds the endpoint of a request.
func (q *request) find() (serve func(*request) (any, error), err error) {
	rest, _ := strings.CutPrefix(q.r.URL.EscapedPath(), q.opts.Path+"/")
	segments := strings.Split(rest, "/")
	for i := range segments {
		if segments[i], err = url.PathUnescape(segments[i]); err != nil || segments[i] == "" {
			return nil, semel.ErrNotFound
		}
	}
	var allowed []string
	for i := range endpoints {
		e := &endpoints[i]
		values, ok := e.matches(segments)
		if ok && e.method == q.r.Method {
			q.ids = values
			return e.serve, nil
		}
		if ok {
			allowed = append(allowed, e.method)
		}
	}
	if allowed == nil {
		return nil, semel.ErrNotFound
	}
	q.w.Header().Set("Allow", strings.Join(allowed, ", "))
	return nil, &semel.Error{Code: door.CodeMethodNotAllowed}
}

// document is JSON that somebody has given and that others get as it is.
func document(text []byte) json.RawMessage {
	if len(text) == 0 || json.Valid(text) {
		return text
	}
	quoted, _ := json.Marshal(string(text)) // of a Go program on the same store
	return quoted
}
