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
	"github.com/semelhq/semel/internal/extract"
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
	// Service is the service's name in its capabilities. Defaults to "semel".
	Service string
	// Functions that callers can call. Required.
	Functions []Function
	// Runner runs the calls. Defaults to a runner of the service's own, which [Service.Close]
	// closes.
	Runner *door.Runner
	// Identify says who sent a request. Defaults to [semelhttp.Guard.Caller] of a guard with
	// the defaults, which knows callers by their credentials, and accepts callers without one
	// only on a loopback address.
	Identify func(r *http.Request) (semelhttp.Caller, error)
	// Challenge is the WWW-Authenticate of a 401. Defaults to Bearer.
	Challenge string
	// Extensions are URNs of further extensions that functions understand. A request with any
	// other that changes the call or its result is refused.
	Extensions []string
	// MaxBody is the largest request, in bytes. Defaults to 1 MiB.
	MaxBody int64
	// Timeout is how long a function may run. Defaults to 1 minute.
	Timeout time.Duration
	// MaxTTL is the longest ttl that a request can ask for. Defaults to 30 days.
	MaxTTL time.Duration
	// HashKey is the secret for the hash of the first arguments in a conflict. Give all nodes
	// the same one, so that equal arguments have equal hashes. Defaults to a random one of this
	// service.
	HashKey []byte
	// PlainHash shows the SHA-256 of the arguments' RFC 8785 form instead. Anybody who sees it
	// can find out arguments that are easy to guess.
	PlainHash bool
	// PublishedForm answers like the specification's examples: with PlainHash, without the
	// retry extension, and without data for the status "processing".
	PublishedForm bool
	// IgnoreReadKeys ignores the idempotency extension in requests to functions that only read,
	// instead of refusing them with EXTENSION_NOT_APPLICABLE.
	IgnoreReadKeys bool
	// Attributes are kept with a call's record, by name, so that people can find it. Each is
	// json:/POINTER of the arguments, or header:NAME.
	Attributes map[string]string
	// Components are further components for health, by name. A nil error means healthy; error
	// texts aren't shown. The store is "database", and the process "self".
	Components map[string]func(ctx context.Context) error
	// Node names this node in answers. Defaults to empty: no name.
	Node string
	// Attrs distinguish this service from others in its log lines.
	Attrs []slog.Attr
}

// Service serves functions. The engine's Events get every answer and every error that no
// caller gets. It has no state of its own; any number of services may serve one store. It may
// be used concurrently.
type Service struct {
	engine    *semel.Engine
	opts      Options
	functions map[string]*function
	supported map[string]bool // extensions, by short name or, for others, by URN
	names     *extract.Names
}

// New makes a service on an engine and registers its functions' operations there. It reports
// every problem with them at once.
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
	opts.MaxTTL, opts.PlainHash = cmp.Or(opts.MaxTTL, DefaultMaxTTL), opts.PlainHash || opts.PublishedForm
	if opts.HashKey == nil {
		opts.HashKey = make([]byte, 32)
		rand.Read(opts.HashKey) // documented never to fail
	}
	names, err := extract.NewNames(Name, opts.Attributes)
	if err != nil {
		return nil, err
	}
	s := &Service{engine: engine, opts: opts, functions: map[string]*function{}, supported: map[string]bool{}, names: names}
	for _, urn := range opts.Extensions {
		s.supported[cmp.Or(shortName(urn), urn)] = true
	}
	var errs []error
	for _, f := range opts.Functions {
		reg, err := register(engine, f)
		if err == nil && s.functions[f.Name] != nil {
			err = errors.New("forrst: function " + f.Name + " is there twice")
		}
		s.functions[f.Name], errs = reg, append(errs, err)
	}
	return s, errors.Join(errs...)
}

// Close waits until all outcomes are recorded that are still being retried, or ctx is done.
// Call it after you have shut down the server, unless the runner is yours.
func (s *Service) Close(ctx context.Context) error { return s.opts.Runner.Close(ctx) }

// reportError reports an error that no caller gets.
func (s *Service) reportError(err error) {
	s.engine.Internal().Troubled(door.Trouble(Name, err, slog.LevelWarn, "forrst", s.opts.Attrs...))
}

// ServeHTTP answers one request, whatever its path.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began, x := time.Now(), exchange{service: s, w: w, in: r}
	reply := s.opts.Runner.Deliver(r.Context(), door.Delivery{
		Name: Name, Header: r.Header, Call: x.recognise, Work: door.Work{Handler: &x, Timeout: s.opts.Timeout}, Answer: x.reply,
	})
	if !errors.Is(reply.Err, body.ErrRefused) {
		s.write(w, x.id, x.r, x.answer, began)
	}
}

// errAnswered is why a request that already has its answer delivers no call.
var errAnswered = errors.New("forrst: the request was answered without a call")

// read reads a request, or answers one that is malformed.
func (x *exchange) read(ctx context.Context) error {
	s, r := x.service, x.in
	if r.Method != http.MethodPost {
		x.w.Header().Set("Allow", http.MethodPost)
		return x.refuse(http.StatusMethodNotAllowed, one(InvalidRequest, nil, "Use POST"))
	}
	caller, err := s.opts.Identify(r)
	if err != nil {
		return x.refuseCaller(err)
	}
	if !body.IsJSON(r.Header) {
		return x.refuse(http.StatusUnsupportedMediaType, one(InvalidRequest, nil, "Content-Type must be application/json, without a Content-Encoding"))
	}
	text, err := body.Read(x.w, r, s.opts.MaxBody)
	if errors.Is(err, body.ErrRefused) {
		return err
	}
	if err != nil {
		x.w.Header().Set("Connection", "close") // the rest of the body isn't worth reading
		if errors.Is(err, body.ErrTooLong) {
			return x.refuse(http.StatusRequestEntityTooLarge, one(InvalidRequest, nil, "The request has more than %d bytes", s.opts.MaxBody))
		}
		return x.refuse(http.StatusBadRequest, one(InvalidRequest, nil, "The request did not arrive whole; send it again"))
	}
	var errs Errors
	if x.r, x.id, errs = parse(text); len(errs) > 0 {
		return x.with(refused(errs))
	}
	x.r.Caller, x.r.Header = caller, door.Traced(r.Header, s.engine.Internal().Trace(ctx))
	return nil
}

// attrsOf returns this door's attributes of a log line. Each try of a call has its own id, which
// its sender may ask about (FOR-ID.2). The record stands for the key, which no log line has.
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

// with answers a request that delivers no call.
func (x *exchange) with(a answer) error {
	x.answer = a
	return errAnswered
}

// refuse answers a malformed request.
func (x *exchange) refuse(status int, errs Errors) error {
	a := refused(errs)
	a.status, a.effect = status, door.EffectNone
	return x.with(a)
}

// refuseCaller answers an unidentified sender.
func (x *exchange) refuseCaller(err error) error {
	x.stranger = err
	why, said := errors.AsType[*semelhttp.Refused](err)
	e, _ := errors.AsType[*semel.Error](err)
	switch {
	case e != nil && e.Code == semel.CodeForbidden:
		return x.refuse(http.StatusForbidden, one(Forbidden, nil, "The caller may not use this service"))
	case e != nil && e.Code == semel.CodeStoreUnavailable:
		x.service.reportError(err) // because the event doesn't report it
		x.stranger = nil
		return x.refuse(http.StatusServiceUnavailable, unavailable())
	}
	challenge, detail := x.service.opts.Challenge, "The caller could not be identified, so its keys can't be told apart from those of others. Send a credential"
	if said {
		challenge, detail = cmp.Or(why.Challenge, challenge), cmp.Or(strings.TrimSuffix(why.Detail, "."), detail)
	}
	// RFC 9110 section 11.6.1 requires a challenge with every 401.
	x.w.Header().Set("WWW-Authenticate", challenge)
	return x.refuse(http.StatusUnauthorized, one(Unauthorized, nil, "%s", detail))
}

// changing are the extensions that change a call or its result. Clients rely on them: if a dry
// run ran, it would be a real payment.
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
		return one(ExtensionNotSupported, nil, "Extension not supported: %s", strings.Join(unsupported, ", ")).
			detailed(map[string]any{"unsupported": unsupported, "supported": s.extensions()})
	}
	x := r.idempotency
	switch {
	case x != nil && (f == nil || f.readOnly) && s.opts.IgnoreReadKeys:
		r.idempotency = nil // nothing is recorded under the key, so the answer has none
	case x != nil && (f == nil || f.readOnly):
		return one(ExtensionNotApplicable, At("extensions", strconv.Itoa(x.index)), "The idempotency extension is not applicable to a function that changes nothing").
			detailed(map[string]any{"extension": x.URN, "function": r.Function})
	case x != nil:
		errs := x.parse(s.opts.MaxTTL)
		r.Key = x.key
		return errs
	case f != nil && !f.readOnly && f.Key == semelhttp.KeyRequired:
		return one(InvalidArguments, At("extensions"), "The function needs the extension %s with a key that is the same in all retries", IdempotencyURN)
	}
	return nil
}

// extensions returns the supported ones, sorted after the service's own.
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
