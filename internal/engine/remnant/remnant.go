// Package remnant says what is left of records that nobody needs whole any more. After the window, if
// the call is remembered for longer (Operation.Remember of package semel), that is enough to tell people
// what happened, and not to run again, and nothing that the call or its answer contained.
package remnant

import (
	"slices"

	"github.com/semelhq/semel/store"
)

// Due reports whether a record's window is over at now, but not its time, and it still has its answer. One with work
// left keeps it until that is done.
func Due(r *store.Record, now store.Instant) bool {
	return r.State.Terminal() && r.Policy.Remember > r.Policy.Window && !r.OnlyNamed() && !r.Unfinished() && now >= r.AnswerUntil() && now < r.ExpiresAt
}

// Leave takes from r, a shallow copy of a stored record, what doesn't stay. Names stay: identity,
// attributes, fingerprint, principal, holder, and those of attempts, effects and messages. So do
// times, states and codes. The results of effects stay if another attempt may follow, which would
// otherwise repeat them.
func Leave(r *store.Record) {
	r.NextAt, r.Result, r.Payload, r.Failure = r.ExpiresAt, store.Result{Tombstone: true}, nil, code(r.Failure)
	if r.State == store.Completed {
		r.Effects = slices.Clone(r.Effects)
		for i := range r.Effects {
			r.Effects[i].Result, r.Effects[i].Failure = store.Result{Tombstone: true}, code(r.Effects[i].Failure)
		}
	}
	r.Earlier, r.Outbox = slices.Clone(r.Earlier), slices.Clone(r.Outbox)
	for i := range r.Earlier {
		r.Earlier[i].Failure = code(r.Earlier[i].Failure)
	}
	for i := range r.Outbox {
		r.Outbox[i].Payload, r.Outbox[i].Failure = nil, code(r.Outbox[i].Failure)
	}
}

// OfNothing is what is left, until it expires, of a call by which nothing happened and that nobody may
// need: its fence, and whose it was.
func OfNothing(r *store.Record, expires store.Instant) *store.Record {
	return &store.Record{
		ID: r.ID, State: r.State, Disposition: r.Disposition, BoundTo: r.BoundTo, Door: r.Door, Sequence: r.Sequence,
		RefusedUntil: r.RefusedUntil, Fence: r.Fence, Origin: r.Origin, Attempt: r.Attempt, Holder: r.Holder,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, StartedAt: r.StartedAt, EndedAt: r.EndedAt, ExpiresAt: expires, NextAt: expires,
	}
}

// code is a failure without its text.
func code(f *store.Failure) *store.Failure {
	if f == nil {
		return nil
	}
	return &store.Failure{Code: f.Code}
}
