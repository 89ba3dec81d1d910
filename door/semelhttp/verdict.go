package semelhttp

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Refusal is an answer from around or inside a guarded handler. It has the form of the
// route's [Profile], like the guard's own refusals.
type Refusal struct {
	// Status is the HTTP status of the answer.
	Status int
	// Code is its stable name.
	Code semel.Code
	// Title and Detail are texts for people. Don't put payloads or keys in them.
	Title  string
	Detail string
	// RetryAfter is when sending the request again makes sense; zero if never.
	RetryAfter time.Duration
}

// RefusalOf returns the refusal that the table of package door has for a code, with the table's
// words if detail is empty.
func RefusalOf(code semel.Code, detail string) Refusal {
	p := problemOf(code).Refusal
	p.Detail = cmp.Or(detail, p.Detail)
	return p
}

// Refuse answers a request in the form of a profile. The zero profile stands for [IETF].
// Use it to refuse requests before a guard sees them.
func (g *Guard) Refuse(w http.ResponseWriter, r *http.Request, p Profile, f Refusal) {
	h, tap := handler{guard: g, route: Route{Profile: p}}, g.engine.Internal()
	ctx := tap.Arrived(r.Context(), Name, r.Header)
	got := h.refuse(w, problem{Refusal: f})
	tap.Answered(ctx, semel.Delivered{Code: got.code, Status: got.status})
}

// Engine returns the guard's engine.
func (g *Guard) Engine() *semel.Engine { return g.engine }

// verdict is what a handler says about the effects of its attempt. It overrides the
// status of the answer.
type verdict struct {
	end    store.Disposition // zero: held
	why    string
	answer Refusal
}

// Refuted says that a guarded handler can prove that nothing happened, such as a proxy
// without a connection: the attempt ends as aborted, so the next delivery runs again. The
// caller gets the refusal with a link to the call's status, and what the handler has
// answered is dropped. Call it inside the handler, and return after it.
//
// It does nothing if ctx isn't that of a guarded handler.
func Refuted(ctx context.Context, why string, f Refusal) {
	conclude(ctx, &verdict{end: semel.DispositionAborted, why: why, answer: f})
}

// Silent says that a guarded handler can't tell what happened: the attempt is given up as
// if its process had died, and runs again only if the ledger or Operation.OnAbandoned
// allows that. Otherwise it is like [Refuted]. If the answer was passing through already,
// the connection is broken, so that the caller notices that the answer isn't whole.
func Silent(ctx context.Context, why string, f Refusal) {
	conclude(ctx, &verdict{end: semel.DispositionAbandoned, why: why, answer: f})
}

// Held says that a guarded handler found something that only a reconciler or an operator
// can judge: the record is held, whatever Operation.OnAbandoned says. Otherwise it is
// like [Silent].
func Held(ctx context.Context, why string, f Refusal) {
	conclude(ctx, &verdict{why: why, answer: f})
}

// RunsAgain reports whether the next delivery of a guarded call will run after the handler's
// answer, see [Inspector.RunsAgain]. Call it when the answer is complete. It reports false if
// ctx isn't that of a guarded handler.
func RunsAgain(ctx context.Context) bool {
	s, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok || s.capture.status == 0 {
		return false
	}
	s.capture.judgeWhole()
	return !s.capture.announced && s.capture.h.runsAgain(s.capture.found.Verdict)
}

// Panicked says that a guarded handler panicked. Call it from a recoverer inside the guard that
// answers after its deferred function has returned, as echo's does. The attempt ends as if the
// panic had reached the guard: it is given up, and runs again only if the ledger or
// Operation.OnAbandoned allows that. The caller gets what the recoverer answers, unless that
// would be a success. If part of the answer has left already, the connection is broken.
//
// A recoverer that answers 500 or more in its deferred function, as most do, needs none of
// this: the guard sees that a panic goes on, unless the answer says Semel-Effect. Nor does a
// recoverer around the guard. Panicked does nothing if ctx isn't that of a guarded handler.
func Panicked(ctx context.Context) {
	if s, ok := ctx.Value(scopeKey{}).(*scope); ok {
		s.panic()
	}
}

func conclude(ctx context.Context, v *verdict) {
	if s, ok := ctx.Value(scopeKey{}).(*scope); ok {
		s.mu.Lock()
		s.verdict = v
		s.mu.Unlock()
	}
}

type scopeKey struct{}
