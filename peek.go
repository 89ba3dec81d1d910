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
func (in Internal) Peek(ctx context.Context, call Call) (Answer, error) {
	e := in.engine
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
	if err := d.ownRefusal(ctx); err != nil {
		return Answer{}, err
	}
	r := ruling{decision: Execute}
	if d.cur.State != absent {
		r = d.rule()
	}
	if d.op.Sequenced && r.decision == Execute {
		next, decision, err := d.ruleNumber(ctx)
		switch {
		case err != nil:
			return Answer{}, err
		case next == startOver:
			r = d.rule()
		case next == answered:
			return d.ans, d.answer(ctx)
		case decision != Execute:
			d.refuseNumber(decision)
			err = d.answer(ctx)
			return d.ans, err
		}
	}
	if d.cur.State == absent {
		return would, nil
	}
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
