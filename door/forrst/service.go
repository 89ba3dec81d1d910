package forrst

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/safehttp"
)

// Name is the mark of records that came through this door; see [semel.Call].Door.
const Name = "forrst"

// Defaults of [Options].
const (
	DefaultMaxBody = 1 << 20
	DefaultTimeout = time.Minute
	DefaultMaxTTL  = 30 * day
)

// Options configures a [Service]. The zero value of every field but Functions is the
// documented default.
type Options struct {
	// Service is its name in capabilities. Defaults to "semel".
	Service string
	// Functions are those that can be called. Required.
	Functions []Function
	// Runner runs the calls. Defaults to one of the service's own, which [Service.Close]
	// closes.
	Runner *door.Runner
	// Identify tells who sends a request. Defaults to [semelhttp.Guard.Caller] of a guard
	// with the defaults, which knows callers by their credentials, and accepts those
	// without one on a loopback address only.
	Identify func(r *http.Request) (semelhttp.Caller, error)
	// Challenge is the WWW-Authenticate of a 401. Defaults to Bearer.
	Challenge string
	// Extensions are URNs of further extensions that functions understand. Those that
	// change what a call does or returns are refused otherwise.
	Extensions []string
	// MaxBody is the largest request, in bytes. Defaults to 1 MiB.
	MaxBody int64
	// Timeout is how long a function may run. Defaults to 1 minute.
	Timeout time.Duration
	// MaxTTL is the longest ttl that a request may ask for. Defaults to 30 days.
	MaxTTL time.Duration
	// HashKey is the secret of the hash that a conflict shows of the first arguments.
	// Give all nodes the same, so that equal arguments have equal hashes. Defaults to
	// a random one of this service.
	HashKey []byte
	// PlainHash shows the SHA-256 of the arguments' RFC 8785 form instead. Whoever sees
	// it can find out arguments that are easy to guess.
	PlainHash bool
	// Components are further components of health, by name. A nil error is healthy;
	// its text is not shown. The store is "database", and the process "self".
	Components map[string]func(ctx context.Context) error
	// Node names this node in answers. Defaults to empty: it isn't named.
	Node string
	// Attrs tell this service from others in its log lines.
	Attrs []slog.Attr
}

// Service serves functions. The engine's Events get what it has answered and met (see
// Answered and Troubled of [semel.Events]). It has no state of its own; any number of services may serve
// one store. It may be used concurrently.
type Service struct {
	engine    *semel.Engine
	opts      Options
	functions map[string]*function
	supported map[string]bool // extensions, by short name or else by URN
}

// New makes a service on an engine and registers the operations of its functions there.
// Every problem with them is reported at once.
func New(engine *semel.Engine, opts Options) (*Service, error) {
	if engine == nil || len(opts.Functions) == 0 {
		return nil, errors.New("forrst: a service needs an engine and functions")
	}
	if opts.MaxBody < 0 || opts.Timeout < 0 || opts.MaxTTL < 0 {
		return nil, errors.New("forrst: MaxBody, Timeout and MaxTTL may not be negative")
	}
	if opts.Runner == nil {
		opts.Runner = door.NewRunner(engine)
	}
	if opts.Identify == nil {
		guard, err := semelhttp.New(engine, nil)
		if err != nil {
			return nil, err
		}
		opts.Identify = guard.Caller
	}
	opts.Service, opts.Challenge = cmp.Or(opts.Service, "semel"), cmp.Or(opts.Challenge, "Bearer")
	opts.MaxBody, opts.Timeout = cmp.Or(opts.MaxBody, DefaultMaxBody), cmp.Or(opts.Timeout, DefaultTimeout)
	opts.MaxTTL = cmp.Or(opts.MaxTTL, DefaultMaxTTL)
	if opts.HashKey == nil {
		opts.HashKey = make([]byte, 32)
		rand.Read(opts.HashKey) // never fails, as documented
	}
	s := &Service{engine: engine, opts: opts, functions: map[string]*function{}, supported: map[string]bool{}}
	for _, urn := range opts.Extensions {
		s.supported[cmp.Or(shortName(urn), urn)] = true
	}
	var errs []error
	for _, f := range opts.Functions {
		reg, err := register(engine, f)
		if err == nil && s.functions[f.Name] != nil {
			err = errors.New("forrst: function " + f.Name + " is there twice")
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.functions[f.Name] = reg
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// Close waits until every outcome is recorded that could not be recorded at once, or ctx
// is done. Call it after the server was shut down, unless the runner is yours.
func (s *Service) Close(ctx context.Context) error { return s.opts.Runner.Close(ctx) }

func (s *Service) newKey() string { return safehttp.NewKey() }

// reportError tells of an error that no caller gets.
func (s *Service) reportError(err error) {
	s.engine.Internal().Troubled(semel.Event{Door: Name, Err: err, Attrs: door.Line(slog.LevelWarn, "forrst", append(slices.Clip(s.opts.Attrs), slog.Any("error", err))...)})
}

// ServeHTTP answers one request, whatever its path.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	ctx := s.engine.Internal().Arrived(r.Context(), Name, r.Header)
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		s.refuse(ctx, w, http.StatusMethodNotAllowed, one(InvalidRequest, nil, "Use POST"), began)
		return
	}
	caller, err := s.opts.Identify(r)
	if err != nil {
		s.refuseCaller(ctx, w, err, began)
		return
	}
	if !body.IsJSON(r.Header) {
		s.refuse(ctx, w, http.StatusUnsupportedMediaType, one(InvalidRequest, nil, "Content-Type must be application/json, without a Content-Encoding"), began)
		return
	}
	text, err := body.Read(w, r, s.opts.MaxBody)
	if errors.Is(err, body.ErrRefused) {
		return
	}
	if err != nil {
		w.Header().Set("Connection", "close") // what is left of the body is not worth reading
		if errors.Is(err, body.ErrTooLong) {
			s.refuse(ctx, w, http.StatusRequestEntityTooLarge, one(InvalidRequest, nil, "The request has more than %d bytes", s.opts.MaxBody), began)
			return
		}
		s.refuse(ctx, w, http.StatusBadRequest, one(InvalidRequest, nil, "The request did not arrive whole; send it again"), began)
		return
	}
	req, id, errs := parse(text)
	if len(errs) > 0 {
		a := refused(errs)
		s.tell(ctx, semel.Event{Code: a.code, Status: a.status})
		s.write(w, id, req, a, began)
		return
	}
	req.Caller, req.Header = caller, door.Traced(r.Header, s.engine.Internal().Trace(ctx))
	a := s.serve(ctx, req)
	if s.engine.Internal().Listens() {
		e := door.EventOf(a.ans)
		e.ID, e.Code, e.Status, e.Request, e.Attrs = req.record, a.code, a.status, req.ID, attrsOf(req, &a)
		s.tell(ctx, e)
	}
	s.write(w, id, req, a, began)
}

// tell tells of an answer.
func (s *Service) tell(ctx context.Context, e semel.Event) {
	e.Attrs = append(slices.Clip(s.opts.Attrs), e.Attrs...)
	s.engine.Internal().Answered(ctx, e)
}

// attrsOf is what a log says of a request beside what it says of each: each try of a call has
// an id of its own, by which its sender asks about it (FOR-ID.2). The record stands for the
// key, which no log line has.
func attrsOf(r *Request, a *answer) []slog.Attr {
	var original, status, code string
	if a.data != nil {
		status = a.data.Status
		if a.data.OriginalRequestID != r.ID {
			original = a.data.OriginalRequestID
		}
	}
	var errs []struct{ Code string }
	if json.Unmarshal(a.errors, &errs) == nil && len(errs) > 0 {
		code = errs[0].Code
	}
	return []slog.Attr{
		slog.String("original_request", original), slog.String("function", r.Function), slog.String("version", r.Version),
		slog.String("forrst_status", status), slog.String("forrst_code", code),
	}
}

// refuse answers what is no request.
func (s *Service) refuse(ctx context.Context, w http.ResponseWriter, status int, errs Errors, began time.Time) {
	s.refuseBecause(ctx, w, status, errs, semel.Event{}, began)
}

// refuseBecause is refuse with what the event says beside the code.
func (s *Service) refuseBecause(ctx context.Context, w http.ResponseWriter, status int, errs Errors, e semel.Event, began time.Time) {
	a := refused(errs)
	a.status, a.effect, e.Code, e.Status = status, door.EffectNone, a.code, status
	s.tell(ctx, e)
	s.write(w, "", nil, a, began)
}

// refuseCaller answers a request whose sender could not be identified.
func (s *Service) refuseCaller(ctx context.Context, w http.ResponseWriter, err error, began time.Time) {
	told := semel.Event{Err: err}
	why, said := errors.AsType[*semelhttp.Refused](err)
	e, _ := errors.AsType[*semel.Error](err)
	switch {
	case e != nil && e.Code == semel.CodeForbidden:
		s.refuseBecause(ctx, w, http.StatusForbidden, one(Forbidden, nil, "The caller may not use this service"), told, began)
	case e != nil && e.Code == semel.CodeStoreUnavailable:
		s.reportError(err)
		s.refuse(ctx, w, http.StatusServiceUnavailable, unavailable(), began)
	default:
		challenge, detail := s.opts.Challenge, "The caller could not be identified, so its keys can't be told apart from those of others. Send a credential"
		if said {
			challenge, detail = cmp.Or(why.Challenge, challenge), cmp.Or(strings.TrimSuffix(why.Detail, "."), detail)
		}
		// RFC 9110 section 11.6.1 wants a challenge with every 401.
		w.Header().Set("WWW-Authenticate", challenge)
		s.refuseBecause(ctx, w, http.StatusUnauthorized, one(Unauthorized, nil, "%s", detail), told, began)
	}
}

// changing are the extensions that change what a call does or returns. To ignore one
// that a client relies on would do what it asked not to be done.
var changing = map[string]bool{
	"async": true, "atomic-lock": true, "batch": true, "dry-run": true, "query": true, "redact": true, "replay": true, "simulation": true, "stream": true,
}

// negotiate refuses extensions that can't be honoured.
func (s *Service) negotiate(r *Request, f *function) Errors {
	var unsupported []string
	for _, x := range r.Extensions {
		if name := shortName(x.URN); changing[name] && !s.supported[name] {
			unsupported = append(unsupported, x.URN)
		}
	}
	if len(unsupported) > 0 {
		e := one(ExtensionNotSupported, nil, "Extension not supported: %s", strings.Join(unsupported, ", "))
		e[0].Details = struct {
			Unsupported []string `json:"unsupported"`
			Supported   []string `json:"supported"`
		}{unsupported, s.extensions()}
		return e
	}
	x := r.idempotency
	switch {
	case x != nil && (f == nil || f.readOnly):
		e := one(ExtensionNotApplicable, At("extensions", strconv.Itoa(x.index)), "The idempotency extension is not applicable to a function that changes nothing")
		e[0].Details = struct {
			Extension string `json:"extension"`
			Function  string `json:"function"`
		}{x.URN, r.Function}
		return e
	case x != nil:
		errs := x.parse(s.opts.MaxTTL)
		r.Key = x.key
		return errs
	case f != nil && !f.readOnly && f.Key == semelhttp.KeyRequired:
		return one(InvalidArguments, At("extensions"), "The function needs the extension %s with a key that is the same in all retries", IdempotencyURN)
	}
	return nil
}

// extensions are those that are supported, sorted after the service's own.
func (s *Service) extensions() []string {
	list := slices.Collect(maps.Keys(s.supported))
	for i, name := range list {
		if !strings.HasPrefix(name, "urn:") {
			list[i] = "urn:forrst:ext:" + name
		}
	}
	slices.Sort(list)
	return append([]string{IdempotencyURN, retryURN}, list...)
}
