package commerce

import (
	"cmp"
	"context"
	"errors"
	"net/http"
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
	// SessionLifetime, CartLifetime and IntentLifetime default to the packages' lifetimes.
	SessionLifetime, CartLifetime, IntentLifetime time.Duration
	// Charge, Ask and Elsewhere are for [rules.PaymentOptions]. Without Charge there are no payments.
	Charge    func(ctx context.Context, c rules.Charge) (rules.Charged, error)
	Ask       func(ctx context.Context, key string) (rules.Told, error)
	Elsewhere []string
	// Origin, Apply and Send are for [datasync.Options]. Without Apply there are no entities.
	Origin string
	Apply  func(ctx context.Context, s datasync.State) error
	Send   func(ctx context.Context, c datasync.Change) error
	// TypeBase comes before the code in a problem's type. Defaults to "/problems/".
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
	mux      http.ServeMux
}

// New makes a service and registers the operations of its packages with the engine.
func New(engine *semel.Engine, opts Options) (*Service, error) {
	if opts.Identify == nil || !strings.HasPrefix(opts.Path, "/") {
		return nil, errors.New("commerce: Identify or Path is missing")
	}
	opts.Path = strings.TrimSuffix(opts.Path, "/")
	opts.TypeBase = cmp.Or(opts.TypeBase, "/problems/")
	if opts.Token == nil {
		opts.Token = random
	}
	s := &Service{engine: engine, opts: opts}
	var errs [4]error
	if opts.Keys != nil {
		s.sessions, errs[0] = session.New(engine, session.Options{Keys: opts.Keys, Lifetime: opts.SessionLifetime})
	}
	s.mandates, errs[1] = rules.NewMandates(engine, rules.MandateOptions{CartLifetime: opts.CartLifetime, IntentLifetime: opts.IntentLifetime})
	if opts.Charge != nil {
		// The gateway is behind the program that charges, which gets the payment's own key.
		s.payments, errs[2] = rules.NewPayments(engine, rules.PaymentOptions{
			Gateway: shield.Provider{Name: "gateway", Header: "Idempotency-Key"}, Charge: opts.Charge, Ask: opts.Ask, Mandates: s.mandates, Elsewhere: opts.Elsewhere,
		})
	}
	if opts.Apply != nil {
		s.replica, errs[3] = datasync.New(engine, datasync.Options{Origin: opts.Origin, Apply: opts.Apply, Send: opts.Send})
	}
	s.mount()
	return s, errors.Join(errs[:]...)
}

// Destination returns the destination of the messages for [Service.Work]; empty if there are none.
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

// Tell settles a payment by its gateway's report, such as a webhook; see [rules.Payments.Tell].
func (s *Service) Tell(ctx context.Context, tenant string, t rules.Told) error {
	return s.payments.Tell(ctx, tenant, t)
}

// Declares reports whether an operation is the service's own.
func (s *Service) Declares(operation string) bool { return strings.HasPrefix(operation, "commerce.") }

// endpoint is one of the addresses below the path, see the package.
type endpoint struct {
	method, pattern string
	serve           func(q *request) (any, error)
}

var endpoints = []endpoint{
	{"POST", "sessions", (*request).beginSession},
	{"GET", "sessions", (*request).listSessions},
	{"GET", "sessions/{id}", (*request).getSession},
	{"DELETE", "sessions/{id}", (*request).endSession},
	{"POST", "mandates", (*request).makeMandate},
	{"GET", "mandates/{id}", (*request).getMandate},
	{"DELETE", "mandates/{id}", (*request).endMandate},
	{"POST", "payments", (*request).pay},
	{"GET", "payments/{id}", (*request).getPayment},
	{"POST", "payments/{id}/reconcile", (*request).reconcile},
	{"GET", "entities/{entity}/{id}", (*request).getEntity},
	{"PUT", "entities/{entity}/{id}", (*request).putEntity},
	{"POST", "changes", (*request).takeChange},
}

// mount gives each address its endpoint, and everything else a refusal. It also refuses
// whatever the configuration lacks.
func (s *Service) mount() {
	absent := map[string]bool{"sessions": s.sessions == nil, "payments": s.payments == nil, "entities": s.replica == nil, "changes": s.replica == nil}
	allowed := map[string][]string{}
	for _, e := range endpoints {
		at, serve := s.opts.Path+"/"+e.pattern, e.serve
		if section, _, _ := strings.Cut(e.pattern, "/"); absent[section] {
			serve = func(*request) (any, error) {
				return nil, &semel.Error{Code: semel.CodeNotFound, Message: "the service has no " + section}
			}
		}
		s.handle(e.method+" "+at, serve)
		allowed[at] = append(allowed[at], e.method)
	}
	for at, methods := range allowed {
		s.handle(at, func(q *request) (any, error) {
			q.w.Header().Set("Allow", strings.Join(methods, ", "))
			return nil, &semel.Error{Code: door.CodeMethodNotAllowed}
		})
	}
	s.handle("/", func(*request) (any, error) { return nil, semel.ErrNotFound })
}

// handle serves a pattern. Requests that change something are in the engine's Events.
func (s *Service) handle(pattern string, serve func(*request) (any, error)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		q := &request{Service: s, w: w, r: r, status: http.StatusOK}
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			q.answer(serve)
			return
		}
		door.Tell(r.Context(), s.engine.Internal(), Name, r.Header, func(ctx context.Context) (semel.Delivered, bool) {
			q.r = r.WithContext(ctx)
			ours := q.answer(serve)
			return q.event, ours
		})
	})
}

// ServeHTTP serves the addresses of the package.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }
