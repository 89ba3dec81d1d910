package semelhttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/prefer"
	refusal "github.com/semelhq/semel/internal/problem"
	"github.com/semelhq/semel/internal/reference"
	"github.com/semelhq/semel/store"
)

// CallStatus is what the status resource says about a call. It has no part of the request or
// the answer.
type CallStatus struct {
	Reference   string            `json:"reference"`
	Operation   string            `json:"operation"`
	State       semel.State       `json:"state"`
	Disposition store.Disposition `json:"disposition,omitzero"`
	// Held says that nobody may run the call until it is settled, and HeldReason says why.
	Held       bool   `json:"held,omitempty"`
	HeldReason string `json:"held_reason,omitempty"`
	// Attempt counts the attempts, from 1.
	Attempt int `json:"attempt"`
	// ResultKept says that you get the answer if you resend the request.
	ResultKept bool          `json:"result_kept"`
	CreatedAt  store.Instant `json:"created_at"`
	UpdatedAt  store.Instant `json:"updated_at"`
	StartedAt  store.Instant `json:"started_at"`
	EndedAt    store.Instant `json:"ended_at,omitzero"`
	ExpiresAt  store.Instant `json:"expires_at,omitzero"`
}

// Status is the resource that refusals link to: GET Options.StatusPath and a reference says how
// far the call has got (IDS-IX.2). With Prefer: wait=N it answers once the call has ended or is
// held, or after N seconds.
//
// Mount it at Options.StatusPath. It identifies the caller by Options.Identity, or by the
// credential that the operation's first route names. Only the caller of the call learns its
// state; anybody else gets the same 404 as for a reference to nothing. But if you have the key
// of a call that is bound to another credential, the answer says so: a 404 would mean that
// there was no such call.
func (g *Guard) Status() http.Handler {
	return http.HandlerFunc(g.serveStatus)
}

func (g *Guard) serveStatus(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		g.refuseStatus(w, because(door.CodeMethodNotAllowed, "The state of a call can be read, and nothing else."))
		return
	}
	name := lastSegment(r.URL.Path)
	call, rec, err := g.find(r, name)
	hidden := func() bool { return call.Unproved || rec.BoundTo != call.BoundTo }
	if err == nil && !hidden() {
		var waited bool
		wait := prefer.Wait(r.Header)
		rec, waited, err = g.await(r.Context(), rec, wait)
		if waited {
			w.Header().Set("Preference-Applied", prefer.Applied(wait))
		}
	}
	if err == nil && hidden() { // perhaps only after the wait
		p := otherCaller(call.Unproved)
		p.reference = name
		g.refuseStatus(w, p)
		return
	}
	if err != nil {
		p := because(semel.CodeNotFound, "There is no such call, or it is not yours.")
		if !errors.Is(err, semel.ErrNotFound) {
			g.reportError(err)
			p = unavailable()
			p.Detail = "The state of the call can't be read at the moment."
		}
		g.refuseStatus(w, p)
		return
	}
	_, perr := answer.Parse(rec.Result.Data)
	if !rec.State.Terminal() {
		w.Header().Set("Retry-After", "1")
	}
	refusal.WriteAs(w, http.StatusOK, "application/json", CallStatus{
		Reference: name, Operation: rec.ID.Operation, State: rec.State, Disposition: rec.Disposition,
		Held: rec.Held, HeldReason: rec.HeldReason,
		Attempt: rec.Attempt, ResultKept: perr == nil && !rec.Result.Tombstone,
		CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt, StartedAt: rec.StartedAt, EndedAt: rec.EndedAt, ExpiresAt: rec.ExpiresAt,
	})
}

// refuseStatus writes a problem in its own form, because the status resource has no profile.
func (g *Guard) refuseStatus(w http.ResponseWriter, p problem) {
	writeRefusal(w, &p, ProblemType, g.document(&p, string(p.Code)))
}

// find returns the record that a reference names, if its identity is the caller's. Its caller
// compares what the record and the call are bound to.
func (g *Guard) find(r *http.Request, text string) (call semel.Call, rec semel.Record, err error) {
	named, ok := reference.Parse(text)
	if !ok {
		return call, rec, semel.ErrNotFound
	}
	call.Operation, call.Key, call.Scope = named.Operation, named.Key, named.Scope
	h := g.handlerOf(call.Operation)
	if h == nil {
		return call, rec, semel.ErrNotFound
	}
	who, err := h.caller(r)
	if err != nil {
		return call, rec, semel.ErrNotFound
	}
	op, _ := g.engine.Internal().Operation(call.Operation)
	who.Name(&call, op.Share)
	id := call.ID(op.Share)
	if !named.Names(id) { // don't ask the store about others
		return call, rec, semel.ErrNotFound
	}
	if rec, err = g.engine.Lookup(r.Context(), id); err != nil {
		return call, rec, err
	}
	if op.Authorize != nil && rec.BoundTo == call.BoundTo && op.Authorize(r.Context(), call, rec) != nil {
		return call, semel.Record{}, semel.ErrNotFound
	}
	return call, rec, nil
}

// handlerOf returns the first handler of an operation.
func (g *Guard) handlerOf(operation string) *handler {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.handlers[operation]
}

// await returns the record once it is terminal or held, or when the wait, which the operation's
// MaxWait bounds, is over.
func (g *Guard) await(ctx context.Context, rec semel.Record, wait time.Duration) (_ semel.Record, waited bool, err error) {
	if wait <= 0 || rec.State.Terminal() || rec.Held {
		return rec, false, nil
	}
	rec, err = g.engine.Internal().Await(ctx, rec.ID, wait)
	return rec, true, err
}
