package semelhttp

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/credential"
	"github.com/semelhq/semel/internal/extract"
	"github.com/semelhq/semel/internal/payload"
)

// Route declares how one handler is guarded. Zero values mean the documented defaults;
// only Operation is required.
type Route struct {
	// Operation is the policy, and is registered with the engine. If only its Name is set, it
	// stands for the operation that the engine already has under that name, if any.
	//
	// Two defaults differ from the engine's: OnFailure is "retry", so that a 500 isn't frozen,
	// unless the operation is Financial, and the profile may set OnFailure and Window.
	// MaxResult bounds status, kept headers and body together.
	Operation semel.Operation
	// Profile defaults to [IETF].
	Profile Profile
	// Key defaults to the profile's rule.
	Key KeyRule
	// KeyHeader is the name of the header with the key. Defaults to
	// Idempotency-Key.
	KeyHeader string
	// KeyFrom lists where the key may be: header:NAME, query:NAME, form:FIELD or json:/POINTER
	// into a JSON body. The first one found is the key; a request with others that differ from
	// it gets 400. If the key may be in the body, the guard identifies the caller before it
	// reads the body, and refuses a body that it can't parse unless the key is elsewhere.
	// Defaults to the KeyHeader alone.
	KeyFrom []string
	// KeyTemplate makes the key from the content of the request if KeyFrom finds none. Without
	// KeyFrom it always does, and the header is ignored.
	KeyTemplate KeyTemplate
	// Sequence says where to find the call's number, in the form of KeyFrom. It is required if
	// the operation is sequenced, see [semel.Operation]. A number has only digits, without
	// leading zeros; in JSON, 1.0 and 1e0 are the number 1. A request without one, or with two,
	// gets 400.
	Sequence string
	// Attributes are kept with the record, by name, so that people can find it. They are
	// selected in the form of KeyFrom, or by answer:/POINTER from a JSON answer that is kept
	// whole; the latter are in the write that records it. An absent or too long value is left
	// out. See [store.Attributes].
	Attributes map[string]string
	// Methods are the guarded methods. Requests with others pass; if such a request has a key
	// although its method isn't safe, the answer says in [UnguardedHeader] that it wasn't
	// guarded. Defaults to every method except the safe ones: GET, HEAD, OPTIONS and TRACE.
	Methods []string
	// Body says how two bodies are compared. Defaults to the profile's mode.
	Body BodyMode
	// FingerprintOnly and FingerprintIgnore are JSON pointers to the parts of a JSON body to
	// compare, and to ignore. Both are part of the fingerprint: if you change them, a delivery
	// of an earlier call gets a conflict until its window ends. A body that isn't JSON is
	// compared whole.
	FingerprintOnly, FingerprintIgnore []string
	// FingerprintHeaders are request headers that must have the same values in every
	// delivery, such as X-Api-Version, or Host if one handler serves several.
	FingerprintHeaders []string
	// MaxBody is the largest request body, in bytes; a larger one gets 413.
	// Defaults to 10 MiB.
	MaxBody int64
	// Timeout is the handler's own deadline, which replaces the request's: it cancels the
	// handler's context. Negative: none. Defaults to 1 minute.
	Timeout time.Duration
	// KeepHeaders are further headers of the answer to keep and replay. Headers that belong to
	// only one delivery are refused.
	KeepHeaders []string
	// Answers say what the handler's answers mean, in place of the table of package judge:
	// which prove that nothing was done, which prove nothing, and which are final. They
	// come before the profile's.
	Answers judge.Answers
	// Forwards says that the handler passes on the answers of another program, as a
	// reverse proxy does. Then a 502, 503 or 504 proves nothing, because somebody in between
	// may have given it, and the call is held. Without it these count as failures like a
	// 500, unless the operation is Financial.
	Forwards bool
	// KeepNothing records that the call ran and its status, but neither headers nor body, for
	// answers with secrets. Duplicates get 410.
	KeepNothing bool
	// Origins are the browser origins of pages that may read refusals and replays, even with
	// credentials, such as https://shop.example. List only origins that the handler lets read
	// its answers: the guard adds the header with the key, and its own headers, to the
	// handler's lists, and widens nothing else.
	Origins []string
	Streams
	// Credential says what tells callers apart if [Options] has no Identity, or if that leaves
	// a caller to the default rule: names of headers, and "cookie:" followed by the name of a
	// cookie. All of them that a request sends, together, stand for its caller. See
	// [Caller.Name] for what that means.
	//
	// Defaults to what usually authenticates: Authorization, Proxy-Authorization, Cookie,
	// X-Api-Key, Api-Key, X-Auth-Token, Plaid-Client-Id and Plaid-Secret, and what the profile
	// adds. The header Cookie means all cookies. If some of them change between two tries, name
	// the one that identifies the caller.
	//
	// In a credential that is signed anew for each try, as AWS clients send it, only the
	// signer's name tells callers apart: the id of the access key. Anybody can write that, so
	// it is never enough to show an answer: a retry of a completed call gets
	// [semel.OtherCaller]. If something in front of the guard verifies the signature, name the
	// part, as in "Authorization:Credential", and the retry gets the answer.
	Credential []string
	// ScopeHeaders are request headers that are part of the identity of a call, such as one
	// with the account that the caller acts for: the same key is another call if one of them
	// differs, or is absent. [ScopePath] stands for the path, [ScopeHost] for the host. The
	// profile's are added.
	ScopeHeaders []string
	// Tx runs the handler inside a transaction of your database, which the handler finds in its
	// context: pgstore.Transactions makes a Transactor, and pgstore.TxFrom finds the
	// transaction. The claim, the handler's rows and its answer commit together, and only then
	// is the answer sent. A crash before that leaves nothing, and the next delivery runs. The
	// handler's answer decides:
	//
	//   - 2xx and 3xx: rows and answer are committed.
	//   - 4xx: the rows are rolled back, and the answer is committed and replayed.
	//   - 500, 501, 505 to 508, and 510: the rows are rolled back; Operation.OnFailure says
	//     whether the answer is replayed, or the next delivery runs, which is this door's
	//     default.
	//   - a status that proves that nothing was done, such as 401, or nothing at all, such
	//     as 504: everything is rolled back, and no record stays, so the next delivery
	//     runs. The caller gets the answer.
	//   - a panic: everything is rolled back, and the next delivery runs, but a financial
	//     operation has failed. The call isn't held.
	//   - [Refuted], [Silent] and [Held]: everything is rolled back.
	//   - an answer that is larger than Operation.MaxResult, or takes the connection
	//     over: everything is rolled back, and the caller gets 500 with the code
	//     answer_too_large. Flush does nothing, so a stream is an answer like others.
	//   - an answer after Timeout, or one that fails to commit: everything is rolled back,
	//     and the caller gets 503; its next delivery runs.
	//
	// A client that hangs up stops neither the handler nor the commit. If the database rolls a
	// transaction back because of others, the handler runs again in another one, on the same
	// body, so it must have no effects outside the database. [Attempt] reports false, because
	// effects outside need an attempt of their own. Requests that pass unguarded have no
	// transaction.
	Tx door.Transactor
	// Anonymous defaults to [AnonymousLoopback].
	Anonymous Anonymous
	// FailOpen gives up the guarantee while the store doesn't answer: requests then run
	// unguarded, as often as they come, and [UnguardedHeader] says so. Without it they get 503.
	FailOpen bool
}

// Streams is the part of a [Route] about answers that a handler flushes.
type Streams struct {
	// IgnoreFlush makes Flush do nothing until the answer is larger than
	// Operation.MaxResult. Set it if a handler flushes out of habit, as a reverse proxy
	// does, and you want its answers kept.
	IgnoreFlush bool
	// MaxStream is the largest event stream that the guard records while it passes, in bytes;
	// see [StreamHeader]. Duplicates of a larger one get 410. Negative: none. Defaults to 4 MiB.
	MaxStream int64
}

// KeyRule says whether a request must have a key.
type KeyRule string

// The key rules.
const (
	KeyRequired KeyRule = "required" // 400 without one
	KeyOptional KeyRule = "optional" // without one the request passes unguarded
)

// Defaults of [Route].
const (
	DefaultKeyHeader = "Idempotency-Key"
	DefaultMaxBody   = 10 << 20
	DefaultMaxStream = 4 << 20
	DefaultTimeout   = time.Minute
)

// withDefaults fills in the defaults, except in Operation.
func (rt Route) withDefaults() Route {
	if rt.Profile.Name == "" {
		rt.Profile = IETF()
	}
	if rt.Key == "" {
		rt.Key = KeyRequired
		if rt.Profile.KeyOptional {
			rt.Key = KeyOptional
		}
	}
	rt.KeyHeader = http.CanonicalHeaderKey(cmp.Or(rt.KeyHeader, DefaultKeyHeader))
	rt.Body = cmp.Or(rt.Body, rt.Profile.Body, BodyAuto)
	rt.MaxBody = cmp.Or(rt.MaxBody, DefaultMaxBody)
	rt.Timeout = cmp.Or(rt.Timeout, DefaultTimeout)
	rt.MaxStream = cmp.Or(rt.MaxStream, DefaultMaxStream)
	if rt.Credential == nil {
		rt.Credential = append(slices.Clip(credential.Usual), rt.Profile.Credentials...)
	}
	rt.ScopeHeaders = canonicalNames(append(slices.Clip(rt.ScopeHeaders), rt.Profile.ScopeHeaders...))
	rt.Anonymous = cmp.Or(rt.Anonymous, AnonymousLoopback)
	rt.FingerprintHeaders = canonicalNames(rt.FingerprintHeaders)
	rt.KeepHeaders = canonicalNames(append(slices.Clip(rt.KeepHeaders), rt.Profile.KeepHeaders...))
	return rt
}

// RequestHeaders returns the headers that the route reads, apart from the ones of every
// request: they identify the call, or must be the same as in the first delivery. If you pass
// requests on to the guard, keep them.
func (rt Route) RequestHeaders() []string {
	rt = rt.withDefaults()
	credentials := credential.New(rt.Credential)
	names := slices.Concat([]string{rt.KeyHeader, "Cookie"}, credentials.Headers(), rt.FingerprintHeaders)
	rule, _ := rt.extract()
	names = append(names, rule.Headers()...)
	for _, n := range rt.ScopeHeaders {
		if n != ScopePath {
			names = append(names, n)
		}
	}
	return names
}

// canonicalNames sorts, so that the order of a declaration doesn't matter.
func canonicalNames(names []string) []string {
	out := make([]string, 0, len(names))
	for _, n := range names {
		out = append(out, http.CanonicalHeaderKey(n))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// extract returns the rule for finding things in the route's requests.
func (rt *Route) extract() (*extract.Rule, error) {
	return extract.New(extract.Spec{
		Keys: rt.KeyFrom, Template: extract.Template(rt.KeyTemplate), MaxKey: rt.Profile.MaxKey, Opaque: rt.Profile.OpaqueKeys,
		Attributes: rt.Attributes, Sequence: rt.Sequence,
		Mode: payload.Mode(rt.Body), Headers: rt.FingerprintHeaders, Only: rt.FingerprintOnly, Ignore: rt.FingerprintIgnore,
	})
}

// operation returns the policy to register for a route: the declared one with this door's
// defaults, or the one that the engine already has.
func (rt *Route) operation(engine *semel.Engine) (op semel.Operation, known bool) {
	op = rt.Operation
	if reflect.DeepEqual(op, semel.Operation{Name: op.Name}) {
		if registered, ok := engine.Internal().Operation(op.Name); ok {
			op, known = registered, true
		}
	}
	if op.OnFailure == "" && op.Financial {
		op.OnFailure = semel.ReplayFailure
	}
	op.OnFailure = cmp.Or(op.OnFailure, rt.Profile.OnFailure, semel.RetryFailure)
	op.Window = cmp.Or(op.Window, rt.Profile.Window)
	if op.Effects != nil && !slices.Contains(op.Effects, answerEffect) {
		op.Effects = append(slices.Clip(op.Effects), answerEffect)
	}
	return op, known
}
