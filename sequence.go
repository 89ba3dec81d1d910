package semel

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/semelhq/semel/store"
)

// Numbered calls. All calls of a sequenced operation that share a key are one sequence,
// and share one record: that of its newest number, the mark. So the mark moves in the same
// atomic write as the claim of the number, and no number can start while another runs.
// Before the next number takes the record over, the outcome in it is kept in a record of
// its own, where late duplicates find it.

// maxNumber is how many bytes a number adds to the key of its kept outcome.
const maxNumber = len(store.ScopeMark) + len("18446744073709551615")

// validateSequence rejects a number where the operation has none, and the reverse.
func (c *Call) validateSequence(op *Operation) error {
	switch {
	case c.Sequence == 0 && op.Sequenced:
		return &Error{Code: CodeInvalidCall, Message: "operation " + op.Name + " is sequenced, and the call has no number; numbers begin with 1"}
	case c.Sequence != 0 && !op.Sequenced:
		return &Error{Code: CodeInvalidCall, Message: "the call has a number, and operation " + op.Name + " isn't sequenced"}
	case op.Sequenced && (len(c.Key) > store.MaxKeyLen-maxNumber || strings.Contains(c.Key, store.ScopeMark)):
		return &Error{Code: CodeInvalidCall, Message: "the key of a sequence has up to " + strconv.Itoa(store.MaxKeyLen-maxNumber) + " bytes without " + store.ScopeMark}
	}
	return nil
}

// PastID is the identity under which the outcome of an earlier number of a sequence is
// kept. No call can have it.
func PastID(sequence ID, number uint64) ID {
	sequence.Key += store.ScopeMark + strconv.FormatUint(number, 10)
	return sequence
}

// inSequence rules on a call whose number isn't that of the record.
func inSequence(op *Operation, call *Call, cur *Record, lease store.Instant) ruling {
	switch {
	case cur.Sequence == 0: // the operation was declared in another way
		return ruling{decision: Conflict}
	case call.Sequence < cur.Sequence:
		return ruling{decision: Superseded} // unless its own outcome was kept
	case running(cur, lease), cur.State.Terminal() && cur.Unfinished(): // where its messages are looked for
		return ruling{decision: InFlight}
	case cur.Held:
		return ruling{decision: Held}
	case cur.State == Processing && !mayRunAgain(cur):
		return ruling{decision: Held, hold: heldReason(cur)}
	case op.Gapless && (call.Sequence > cur.Sequence+1 || !settledOutcome(cur)):
		return ruling{decision: InFlight}
	}
	return ruling{decision: Execute}
}

// settledOutcome reports whether the number of the record was processed: it has an outcome
// that a duplicate gets.
func settledOutcome(cur *Record) bool {
	return cur.State.Terminal() && !nothingHappened(cur)
}

// past finds the outcome of a number below the mark. It reports false if there is none.
func (d *delivery) past(ctx context.Context) (*Record, bool, error) {
	id := PastID(d.id, d.call.Sequence)
	rec, err := d.engine.get(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, false, nil
	case err != nil:
		return nil, false, d.engine.storeError("get", id, err)
	}
	return rec, !rec.Expired(d.at.now), nil
}

// superseded answers a number below the mark: by its own outcome if it was processed, and
// otherwise with the number of the mark.
func (d *delivery) superseded(ctx context.Context) error {
	rec, found, err := d.past(ctx)
	if err != nil {
		return err
	}
	if found {
		if r := rule(&d.op.Operation, &d.call, rec, d.at.now, d.at.now); r.decision != Execute {
			d.foreign = isForeign(&d.call, rec)
			d.ans.Decision, d.ans.Record = r.decision, rec
			return nil
		}
	}
	d.ans.Decision, d.ans.Record = Superseded, &Record{ID: d.id, Sequence: d.cur.Sequence}
	return nil
}

// keepPast keeps the outcome that the record has before the delivery's number replaces it.
// It does nothing if the record's number has no outcome: a late duplicate is then
// superseded.
func (d *delivery) keepPast(ctx context.Context) error {
	cur := d.cur
	if cur.Sequence == 0 || d.call.Sequence <= cur.Sequence || cur.Expired(d.at.now) || !settledOutcome(cur) {
		return nil
	}
	prev := &none
	for range maxClaims {
		past := *cur
		past.ID = PastID(cur.ID, cur.Sequence)
		// The log has what happened under the name of the sequence, so this is no news.
		v := d.engine.newVersion(&d.op.Operation, prev, &past, store.ChangePostponed)
		// A crash before this write leaves the outcome in the record of the sequence. A
		// crash after it leaves it in both: the next delivery finds the copy and goes on.
		// The copy expires with its window.
		stored, applied, err := d.engine.apply(ctx, v)
		if err != nil || applied || stored.Origin == cur.Origin {
			return err
		}
		prev = stored // of a sequence that had this key before, or gone
	}
	return errTooFast
}
