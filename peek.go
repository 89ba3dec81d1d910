package semel

import (
	"context"
)

// Peek returns what a delivery of a call would get now: it never executes, never waits
// and changes no record. [Execute] means that the call would run; the answer then has
// no attempt, and may be out of date when you begin the call. The error is the same as
// that of [Engine.Begin].
//
// An answer without an execution (a replay, a conflict) is reported and limited as if the
// call had been delivered. Peek is for doors that already know that a delivery may not
// execute, such as one with the key of another call.
func (door Door) Peek(ctx context.Context, call Call) (Answer, error) {
	e := door.engine
	d := delivery{engine: e, call: call}
	err := d.admit(ctx)
	if err != nil {
		return Answer{}, err
	}
	if d.at, err = e.read(ctx); err != nil {
		return Answer{}, err
	}
	would := Answer{Decision: Execute, Record: &Record{ID: d.id}}
	if d.op.Class == ReadOnly {
		return would, nil
	}
	if err := d.look(ctx); err != nil {
		return Answer{}, err
	}
	if d.cur.State == absent {
		return would, nil
	}
	r := decide(&d.op.Operation, &d.call, d.cur, d.at.now, e.leaseTime(d.cur, d.at.now), e.restored(d.cur, d.at.now))
	d.foreign = isForeign(&d.call, d.cur)
	d.ans.Decision, d.ans.Record = r.decision, d.cur
	if r.hold != "" { // the next delivery will write it
		if d.ans.Record, err = d.held(r.hold); err != nil {
			return Answer{}, err
		}
	}
	if r.decision != Execute {
		err = d.answer(ctx)
	}
	return d.ans, err
}
