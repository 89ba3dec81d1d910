package semel

import (
	"context"
	"errors"
)

// Peek is what a delivery of a call would get if it came now: it never executes, never
// waits and changes no record. [Execute] means that the call would run; the answer has
// no attempt then, and by the time it is begun that may be different. The error is as
// that of [Engine.Begin].
//
// What a delivery gets without executing (a replay, a conflict) is told, and limited,
// as for one that was delivered: Peek serves doors that know already that a delivery
// may not execute, such as one that comes with the key of another call.
func (e *Engine) Peek(ctx context.Context, call Call) (ans Answer, err error) {
	var id ID
	op, err := e.admit(ctx, &call, &id)
	if err != nil {
		return ans, err
	}
	at, err := e.read(ctx)
	if err != nil {
		return ans, err
	}
	ans.Decision, ans.Record = Execute, &Record{ID: id}
	if op.Class == ReadOnly {
		return ans, nil
	}
	rec, err := e.get(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return ans, nil
	case err != nil:
		return Answer{}, e.storeError("get", id, err)
	}
	r := decide(&op.Operation, &call, &rec, at.now, e.restored(&rec, at.now))
	if r.hold != "" {
		rec.Held = r.hold // which the next delivery will write
	}
	ans.Decision, ans.Record = r.decision, &rec
	if r.decision == Execute {
		return ans, nil
	}
	return ans, e.answer(ctx, op, &call, &ans, at.now, 0)
}
