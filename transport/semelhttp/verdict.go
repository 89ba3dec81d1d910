package semelhttp

import (
	"context"
	"net/http"
	"time"

	"github.com/semelhq/semel"
)

// Refusal is an answer that comes from around or inside a guarded handler and has
// the form of the route's [Profile], as the guard's own refusals have.
type Refusal struct {
	// Status is that of the answer.
	Status int
	// Code is its stable name.
	Code semel.Code
	// Title and Detail are for people. They may not show payloads or keys.
	Title  string
	Detail string
	// RetryAfter is when sending the request again makes sense; zero if never.
	RetryAfter time.Duration
}

func (f *Refusal) problem() problem {
	return problem{status: f.Status, code: f.Code, title: f.Title, detail: f.Detail, retryAfter: f.RetryAfter}
}

// Refuse answers a request in the form of a profile. The zero profile stands for
// [IETF]. It is for what refuses requests before a guard sees them.
func (g *Guard) Refuse(w http.ResponseWriter, p Profile, f Refusal) {
	h := handler{guard: g, route: Route{Profile: p}}
	h.refuse(w, f.problem())
}

// Engine is the engine that the guard was made for.
func (g *Guard) Engine() *semel.Engine { return g.engine }

// verdict is what a handler knows about the effects of its attempt, where its
// status alone would say something else.
type verdict struct {
	kind   endKind
	why    string
	answer problem
}

// Refuted is called by a guarded handler that can prove that nothing happened,
// such as a proxy without a connection: the attempt ends as aborted, so the next
// delivery runs again. The caller gets the refusal with a link to the call's
// status; what the handler has answered is dropped. The handler returns after it.
//
// It does nothing where ctx is not that of a guarded handler.
func Refuted(ctx context.Context, why string, f Refusal) {
	conclude(ctx, &verdict{kind: endAbort, why: why, answer: f.problem()})
}

// Silent is called by a guarded handler that does not know what happened: the
// attempt is given up as if its process had died, and runs again only if the
// ledger or Operation.OnAbandoned allows that. Otherwise as [Refuted]. If the
// answer was passing through already, the connection is broken, so that the
// caller sees that the answer is not whole.
func Silent(ctx context.Context, why string, f Refusal) {
	conclude(ctx, &verdict{kind: endAbandon, why: why, answer: f.problem()})
}

// Held is called by a guarded handler that found something only a reconciler or
// an operator can judge: the record is held, whatever Operation.OnAbandoned says.
// Otherwise as [Silent].
func Held(ctx context.Context, why string, f Refusal) {
	conclude(ctx, &verdict{kind: endHold, why: why, answer: f.problem()})
}

func conclude(ctx context.Context, v *verdict) {
	if s, ok := ctx.Value(scopeKey{}).(*scope); ok {
		s.mu.Lock()
		s.verdict = v
		s.mu.Unlock()
	}
}

type scopeKey struct{}

// concluded is the verdict of a handler that gave one.
func (s *scope) concluded() *verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verdict
}
