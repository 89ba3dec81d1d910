package evidence

import (
	"context"
	"fmt"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

var _ semel.Witness = (*Log)(nil)

// endTypes are the types of artifacts about ended attempts.
var endTypes = map[store.Disposition]Type{
	semel.DispositionCompleted: TypeExecuted,
	semel.DispositionRejected:  TypeRejected,
	semel.DispositionFailed:    TypeFailed,
	semel.DispositionAborted:   TypeAborted,
	semel.DispositionAbandoned: TypeAbandoned,
}

// plainTypes are the types of artifacts about changes that need no more words.
var plainTypes = map[store.Change]Type{
	store.ChangeReleased: TypeReleased, store.ChangeHeld: TypeHeld, store.ChangeMoved: TypeMoved, store.ChangeForgotten: TypeForgotten,
	store.ChangeRestored: TypeRestored, store.ChangeUnconfirmed: TypeConfirmationRefused, store.ChangeConfirmed: TypeConfirmationGiven, store.ChangePurged: TypePurged,
}

// Changed is [semel.Witness.Changed].
func (l *Log) Changed(_ *semel.Operation, prev, next *semel.Record, change store.Change) []store.Entry {
	c := changed{log: l, prev: prev, next: next, base: facts{change: change, rec: next, at: next.UpdatedAt, level: l.durability(), sum: OutcomeDigest(next)}}
	if prev == nil {
		c.prev = &semel.Record{}
	}
	if change != store.ChangePurged && change != store.ChangeRestored {
		c.base.content = l.contentOf(next, c.base.sum).String()
	}
	c.tell()
	return c.entries
}

// Expects is [semel.Witness.Expects], by the index of identities. Entries of version 1 say too
// little about sequences, so for them it expects nothing.
func (l *Log) Expects(ctx context.Context, id semel.ID, since, now store.Instant, all bool) (bool, error) {
	if all {
		if _, err := l.store.ReadEvidence(ctx, 1<<62, 1); err != nil { // which numbers them
			return false, err
		}
	}
	a := auditor{log: l}
	numbers, err := (&Reader{store: l.store}).Find(ctx, l.Subject(id))
	for _, n := range slices.Backward(numbers) {
		t, _, err := a.entry(ctx, n)
		switch {
		case err != nil || t.version == 1 || t.at < since:
			return false, err
		case t.what != nothing && t.what != replayed: // it changed the record
			is := life{}.after(n, &t)
			return is.expected() && !is.gone(now), nil
		}
	}
	return false, err
}

// changed makes the entries for one change.
type changed struct {
	log        *Log
	prev, next *semel.Record
	base       facts
	entries    []store.Entry
}

func (c *changed) add(kind Type, set func(f *facts)) {
	f := c.base
	f.kind = kind
	if set != nil {
		set(&f)
	}
	c.entries = append(c.entries, c.log.entry(&f))
}

// fresh reports whether the change is the first of its call.
func (c *changed) fresh() bool { return c.prev.State == 0 || c.prev.Origin != c.next.Origin }

func (c *changed) tell() {
	next := c.next
	switch c.base.change {
	case store.ChangeClaimed:
		c.claimed()
	case store.ChangeEnded:
		if c.fresh() {
			c.claimed() // the claim was never written by itself
		}
		c.add(endTypes[next.Disposition], func(f *facts) {
			if next.Disposition == semel.DispositionRejected {
				f.reason = ReasonRejected
			}
		})
	case store.ChangeSettled:
		c.effects()
		c.add(TypeSettled, func(f *facts) { f.by = next.Settled })
	case store.ChangeEffect:
		if c.effects(); len(c.entries) == 0 { // an effect was removed
			c.add(TypeEffect, nil)
		}
	case store.ChangeMessage:
		if c.messages(); len(c.entries) == 0 { // only the reason of the last failure changed
			c.add(TypeMessage, nil)
		}
	case store.ChangeCompensation:
		if to := next.Compensation; to != nil {
			c.add(TypeCompensation, func(f *facts) {
				f.state, f.item, f.why = string(to.State), to.Operation, to.Reason
			})
		}
	case store.ChangeChallenged:
		if c.fresh() {
			c.add(TypeObservation, func(f *facts) { f.decision, f.executed = DecisionFirstSeen, notExecuted })
		}
		c.add(TypeConfirmationRequested, nil)
	case store.ChangePurged, store.ChangeConfirmed:
		c.add(plainTypes[c.base.change], func(f *facts) { f.by = next.Settled })
	default:
		c.add(plainTypes[c.base.change], nil)
	}
}

// claimed logs a new attempt, and the end of the one before it if nobody had ended that.
func (c *changed) claimed() {
	if c.fresh() {
		c.add(TypeObservation, func(f *facts) { f.decision, f.executed = DecisionFirstSeen, executed })
		return
	}
	if prev := c.prev; prev.State == semel.Processing {
		c.add(TypeAbandoned, func(f *facts) {
			f.attempt, f.fence, f.disposition = prev.Attempt, prev.Fence, semel.DispositionAbandoned
		})
	}
	if at := c.next.Confirmation; at != nil && at.ConfirmedAt != 0 && (c.prev.Confirmation == nil || c.prev.Confirmation.ConfirmedAt == 0) {
		c.add(TypeConfirmationConsumed, nil)
	}
	c.add(TypeStarted, func(f *facts) { f.executed = executed })
}

// effects adds evidence for every changed entry of the ledger.
func (c *changed) effects() {
	for i := range c.next.Effects {
		to := &c.next.Effects[i]
		if i < len(c.prev.Effects) {
			if was := &c.prev.Effects[i]; was.Name == to.Name && was.State == to.State && was.Fence == to.Fence && was.SettledAt == to.SettledAt {
				continue
			}
		}
		c.add(TypeEffect, func(f *facts) { f.state, f.item, f.by = string(to.State), to.Name, to.Settled })
	}
}

// messages adds evidence for every changed message.
func (c *changed) messages() {
	for i := range c.next.Outbox {
		to := &c.next.Outbox[i]
		if i < len(c.prev.Outbox) {
			if was := &c.prev.Outbox[i]; was.State == to.State && was.Tries == to.Tries && was.NextAt == to.NextAt {
				continue
			}
		}
		c.add(TypeMessage, func(f *facts) { f.state, f.item = string(to.State), to.ID })
	}
}

// Decided is [semel.Witness.Decided]. The first deliveries of a call that get the same answer have
// an entry each; further ones within Options.CountEvery are counted, in one entry. Unverified
// deliveries that are refused as another caller's are also counted, as are deliveries over a quota.
// With the level durable, each delivery of a verified caller has an entry of its own.
//
// At the level decisions, entries of several deliveries are written together within
// Options.FlushEvery: a crash before then loses them, except conflicts, which are answered once
// their entry is durable. If the store can't keep up, the delivery waits, and is finally refused:
// no level allows an answer without evidence.
func (l *Log) Decided(ctx context.Context, op *semel.Operation, call *semel.Call, ans *semel.Answer, pays semel.Payer) error {
	// By the store's clock, like changes.
	now, err := l.store.Now(ctx)
	if err != nil {
		return fmt.Errorf("evidence: the time of a decision: %w", err)
	}
	rec := decidedRecord(call, ans)
	f := facts{kind: TypeAnswered, decision: string(ans.Decision), executed: notExecuted, rec: rec, call: call, at: now, level: l.durability(), sum: OutcomeDigest(rec)}
	refused := false
	switch ans.Decision {
	case semel.Replay:
		f.kind, f.decision = TypeObservation, DecisionReplayed
	case semel.Execute:
		f.executed = executed
	case semel.Conflict:
		f.kind, f.decision, f.reason = TypeRejected, DecisionConflict, ReasonConflict
		refused = true
	default:
		refused = true
	}
	verified, durable := call.BoundTo == "", op.Evidence == semel.EvidenceDurable
	must := ans.Decision == semel.Execute || verified && durable
	may := func(bytes int) bool { return !refused || pays == nil || pays(bytes, now) || must }
	if !must && (ans.Decision == semel.OtherCaller && !verified || !l.counter.single(&f)) {
		return l.counter.add(&f, may)
	}
	entry := l.entry(&f)
	if !may(len(entry.Leaf) + len(entry.Opening)) {
		return l.counter.add(&f, func(int) bool { return false })
	}
	// A collision is refused with evidence or not at all (IDS-VIII.6).
	return l.queue.add(ctx, entry, durable || ans.Decision == semel.Conflict)
}

// decidedRecord returns the record that the delivery's answer is about, or what the delivery
// itself says if nothing is recorded.
func decidedRecord(call *semel.Call, ans *semel.Answer) *semel.Record {
	if ans.Record != nil && ans.Record.ID != (semel.ID{}) {
		return ans.Record
	}
	rec := &semel.Record{}
	if ans.Record != nil {
		*rec = *ans.Record
	}
	rec.ID = semel.ID{Tenant: call.Tenant, Principal: call.Principal, Operation: call.Operation, Key: call.Key}
	rec.Attributes, rec.Principal, rec.Fingerprint = call.Attributes, call.Principal, call.Fingerprint
	return rec
}
