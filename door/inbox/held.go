package inbox

import (
	"context"
	"errors"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// CodeHeld is why a copy of an item is parked: the item should have been done at once, and
// nobody knows whether it was.
const CodeHeld Code = "held"

// heldNow reports whether a delivery found its item held, or left it held. An error that only
// wraps another system's "unknown" may have ended the item all the same.
func heldNow(ans *semel.Answer, err error) bool {
	return ans.Record != nil && (ans.Decision == semel.Held || ans.Decision == semel.Execute && !ans.Record.State.Terminal() && errors.Is(err, semel.ErrUnknown))
}

// parkHeld keeps a copy of an item with a held record, in a record of its own, so that somebody
// can replay it when the sender has given up. The record stays held.
//
// A crash before the copy is written, or an error of the store, leaves the record held without
// one, and the sender's next delivery parks it. A crash after it leaves the copy, and the next
// delivery finds it.
func (b *Inbox[H]) parkHeld(ctx context.Context, it *Item[H], held *semel.Record, res *Result) {
	if len(it.Body) > MaxBody {
		return // it is held anyway, and can be settled
	}
	parked, of := *it, held.ID
	parked.of, parked.content = &of, held.Fingerprint
	why := &store.Failure{Code: string(CodeHeld), Message: "nobody knows whether it was done: replay it to have it done again, or settle " + of.String()}
	keep := func(key string) (semel.Answer, error) {
		return b.once(context.WithoutCancel(ctx), &parked, key, func(_ context.Context, x semel.Execution) error {
			return b.queue(x, &parked, semel.Message{State: store.MessageParked, Failure: why})
		})
	}
	ans, err := keep(it.Key + ":held")
	if ans.Decision == semel.Conflict { // an earlier content was held, too
		ans, err = keep(parkedKey(it.Key+":held", it.Fingerprint))
	}
	if err == nil && ans.Decision == semel.Execute {
		res.Parked = ans.Record.ID
	}
}

// again does an item again after somebody has replayed its copy: it lets the held record run
// once more, and delivers the item to it, so that the sender's next delivery gets the outcome.
// If somebody else has had it done meanwhile, there is nothing to do.
//
// A crash before the record is released leaves the message due. A crash after it leaves a
// record that the next delivery runs, either the sender's or this message again.
func (b *Inbox[H]) again(ctx context.Context, it *Item[H]) error {
	rec, err := b.engine.Lookup(ctx, *it.of)
	switch {
	case errors.Is(err, &semel.Error{Code: semel.CodeNotFound}):
		return &Refusal{CodeHeld, errors.New("the record that was held is gone: nobody knows any more what became of it")}
	case err != nil:
		return err
	case !it.content.IsZero() && it.content != rec.Fingerprint:
		return &Refusal{CodeHeld, errors.New("the record was settled since, and has another content now: this copy would answer for that")}
	case rec.Held:
		_, err := b.engine.Settle(ctx, rec.ID, semel.Settlement{Outcome: semel.DispositionAbandoned}, "its parked copy was replayed")
		if err != nil && !errors.Is(err, &semel.Error{Code: semel.CodeIllegalTransition}) { // somebody else was faster
			return err
		}
	}
	it.Fingerprint, it.Attributes = rec.Fingerprint, rec.Attributes
	ans, err := b.once(ctx, it, it.Key, func(ctx context.Context, _ semel.Execution) error {
		err := b.opts.Handle(ctx, it)
		if refused, ok := errors.AsType[*Refusal](err); ok {
			return semel.Rejected(string(refused.Code), refused.Err)
		}
		return err
	})
	if rejected(&ans) || heldNow(&ans, err) {
		return &Refusal{CodeHeld, err}
	}
	return err
}
