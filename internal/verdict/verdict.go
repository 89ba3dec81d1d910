// Package verdict answers the question that people ask about a call: how often was the work
// begun, and how did it end? It answers from the store, for one call and for several with the
// same name, in numbers and words for programs and in a sentence for people. Everything that
// shows a call shows this answer, so that no two screens disagree.
package verdict

import (
	"slices"
	"strings"

	"github.com/semelhq/semel/store"
)

// State says in a word how a call is doing. States never change their meaning.
type State string

// The states.
const (
	Executed     State = "executed"      // its holder completed it
	Failed       State = "failed"        // it ran and failed
	Rejected     State = "rejected"      // its handler refused it, for good
	Aborted      State = "aborted"       // nothing was done, and the next delivery runs
	Unconfirmed  State = "unconfirmed"   // it waits for its confirmation
	Confirmed    State = "confirmed"     // an operator confirmed it, and the next delivery runs
	Abandoned    State = "abandoned"     // its holder is gone, and the next delivery runs
	Released     State = "released"      // somebody let the next delivery run, although nobody knows what happened
	Settled      State = "settled"       // somebody said how it ended
	Running      State = "running"       // its holder is at work
	Silent       State = "silent"        // its holder has let its lease end
	Held         State = "held"          // nobody knows what happened, and nobody may run it
	Queued       State = "queued"        // an event that was accepted but not yet handled
	Handled      State = "handled"       // an event that its receiver took
	Parked       State = "parked"        // an event that nobody handles until somebody decides
	Discarded    State = "discarded"     // an event that somebody gave up
	Undoing      State = "undoing"       // it was done, and a compensation has begun
	Undone       State = "undone"        // it was done, and undone
	UndoFailed   State = "undo_failed"   // it was done, and undoing it failed
	SequenceMark State = "sequence_mark" // not a call: it orders the numbers of a sequence
)

// Words returns the state for people.
func (s State) Words() string { return strings.ReplaceAll(string(s), "_", " ") }

// Facts are everything that the store has about one call.
type Facts struct {
	Record *store.Record
	// Now is the store's time.
	Now store.Instant
	// Before has the earlier records of the identity, oldest first, from an evidence log. Known
	// says that the log has all of them: without it, nobody can say whether an earlier record
	// was purged.
	Before []Life
	Known  bool
	// Epoch is when the store was last restored from a backup; zero if it never was.
	Epoch store.Instant
	// Harmless says that the asking program has the operation, and that it moves no money.
	Harmless bool
	// OnFailure is what the operation does with a retry of a failed call, replay or retry; empty
	// where whoever asks doesn't have the operation.
	OnFailure string
	// StepUp says that only the caller can confirm a call of the operation, by a further proof.
	StepUp bool
	// Payload is the request, if the store keeps it and the reader may see it.
	Payload []byte
	// Said is the verdict of a service, which knows more than its client.
	Said *Verdict
}

// Life is an earlier record of an identity.
type Life struct {
	Counts
	// PurgedAt is when somebody purged it; zero if it was gone for another reason, such as the
	// end of its window.
	PurgedAt store.Instant
	// Who purged it, and why; empty if the log doesn't say.
	Who, Why string
}

// Counts say how often the work of a call was begun, and how these attempts ended.
type Counts struct {
	Begun int `json:"begun" doc:"How often the work was begun, as far as it is known."`
	Done  int `json:"done" doc:"How many attempts their holder completed."`
	// Told are attempts that somebody settled as completed.
	Told int `json:"told" doc:"How many attempts somebody else settled as completed."`
	// Unknown are attempts that may have done the work.
	Unknown int `json:"unknown" doc:"How many attempts may have done the work: nobody knows."`
}

// AtMost returns how often the work may have been done at most.
func (c Counts) AtMost() int { return c.Done + c.Told + c.Unknown }

func (c *Counts) add(more Counts) {
	c.Begun, c.Done, c.Told, c.Unknown = c.Begun+more.Begun, c.Done+more.Done, c.Told+more.Told, c.Unknown+more.Unknown
}

// Verdict is the answer.
type Verdict struct {
	State State `json:"state" enum:"executed,failed,rejected,aborted,unconfirmed,confirmed,abandoned,released,settled,running,silent,held,queued,handled,parked,discarded,undoing,undone,undo_failed,sequence_mark" doc:"How the call stands, in a word."`
	Counts
	Known bool   `json:"earlier_known" doc:"The evidence log tells of all records that were purged before this one: they are counted."`
	Says  string `json:"says" doc:"The answer in one sentence, for people. In lists it doesn't know of records that were purged before: the evidence log isn't read for them."`
	Retry string `json:"retry,omitempty" doc:"What the next delivery gets, for people: one with the same payload, of the same caller, through the same door."`
	// RestoredAt tells whoever looks through records which of them are from after a restore.
	RestoredAt store.Instant `json:"restored_at,omitzero" format:"date-time" doc:"When the store was last restored from a backup, if somebody has recorded one."`
	// Differ is nil where nobody compared the payloads.
	Differ []string `json:"refused_differ,omitempty" nullable:"false" doc:"Where payloads of refused deliveries differ from the one of the call, as JSON Pointers. Only where one record is asked for, the operation keeps payloads, and the caller may see them."`
	// Advice never contradicts the state, or the class of the operation.
	Advice []Advice `json:"advice,omitempty" nullable:"false" enum:"wait,settle_effects,settle,release,confirm,replay_message" doc:"What somebody can do about it now."`
}

// Advice is something to do about a call.
type Advice string

// The advice. It never says to purge: a call that ran must not run again because somebody was
// curious.
const (
	Wait          Advice = "wait"           // its holder may still end it
	SettleEffects Advice = "settle_effects" // settle its open effects, before anything else
	Settle        Advice = "settle"         // find out what happened, and say so
	Release       Advice = "release"        // or let it run again without knowing what happened
	Confirm       Advice = "confirm"        // ask a person, and confirm it in the caller's place
	ReplayMessage Advice = "replay_message" // send a parked message again
)

// Of judges one call.
func Of(f *Facts) Verdict {
	if f.Said != nil {
		return *f.Said
	}
	v := Verdict{State: stateOf(f), Counts: counted(f), Known: f.Known}
	v.Advice = advice(f, v.State)
	for i := range f.Before {
		v.add(f.Before[i].Counts)
	}
	v.Says, v.Retry, v.RestoredAt = says(f, v.State), retry(f, v.State), f.Epoch
	return v
}

// advice lists the advice that fits. If money moves, it doesn't release an attempt that may
// have moved it.
func advice(f *Facts, state State) (list []Advice) {
	rec := f.Record
	_, open := OpenEffect(rec)
	switch {
	case state == Running, state == Silent:
		list = append(list, Wait)
	case state == Held && open:
		list = append(list, SettleEffects)
	case state == Held:
		if list = append(list, Settle); f.Harmless && !restored(f) {
			list = append(list, Release)
		}
	case state == Unconfirmed && !f.StepUp && !rec.Expired(f.Now) && !restored(f):
		list = append(list, Confirm)
	}
	if slices.ContainsFunc(rec.Outbox, func(m store.Message) bool { return m.State == store.MessageParked }) {
		list = append(list, ReplayMessage)
	}
	return list
}

// restored reports whether the record may be from before something that happened to its call.
func restored(f *Facts) bool { return f.Epoch != 0 && f.Record.UpdatedAt < f.Epoch }

func stateOf(f *Facts) State {
	rec := f.Record
	switch {
	case rec.Mark != nil:
		return SequenceMark
	case rec.Held:
		return Held
	case rec.State == store.Processing && silent(f):
		return Silent
	case rec.State == store.Processing:
		return Running
	case rec.Disposition == store.DispositionAbandoned && rec.Settled != nil && !effectsSettled(rec, rec.Settled):
		return Released
	case rec.Disposition == store.DispositionAbandoned:
		return Abandoned
	case rec.Compensation != nil:
		return undoing[rec.Compensation.State]
	case unconfirmed(rec) && rec.Settled != nil && f.Now < confirmedUntil(rec):
		return Confirmed
	case unconfirmed(rec):
		return Unconfirmed
	case rec.Settled != nil:
		return Settled
	}
	if m := event(rec); m != nil && rec.Disposition == store.DispositionCompleted {
		return queued[m.State]
	}
	switch rec.Disposition {
	case store.DispositionCompleted:
		return Executed
	case store.DispositionRejected:
		return Rejected
	case store.DispositionAborted:
		return Aborted
	}
	return Failed
}

// effectsSettled reports whether an attempt was given back because somebody settled its
// effects, which isn't a release: their results are there.
func effectsSettled(rec *store.Record, by *store.Settled) bool {
	return by != nil && by.At != 0 && slices.ContainsFunc(rec.Effects, func(e store.EffectRecord) bool {
		return e.Settled != nil && e.Settled.At == by.At
	})
}

var undoing = map[store.CompensationState]State{
	store.CompensationStarted: Undoing, store.CompensationDone: Undone, store.CompensationFailed: UndoFailed,
}

var queued = map[store.MessageState]State{
	store.MessagePending: Queued, store.MessageDelivered: Handled, store.MessageParked: Parked, store.MessageDiscarded: Discarded,
}

func silent(f *Facts) bool { return f.Record.LeaseUntil != 0 && f.Record.LeaseUntil < f.Now }

// unconfirmed reports whether a call has run nothing yet because it waits for its confirmation.
func unconfirmed(rec *store.Record) bool {
	return rec.Disposition == store.DispositionAborted && rec.Confirmation != nil && rec.Confirmation.ConfirmedAt == 0
}

// confirmedUntil returns when a confirmation that nobody has used ends. Records from the API lack
// their tokens, and stay as long as the last one, unless the call had run before.
func confirmedUntil(rec *store.Record) store.Instant {
	if all := rec.Confirmation.Tokens; len(all) > 0 {
		return all[len(all)-1].ExpiresAt
	}
	return rec.ExpiresAt
}

// event returns the message with which an inbox hands on an event, nil if the record isn't an event's
// or was handled at once. Its record completes when the event is accepted, which isn't an execution.
func event(rec *store.Record) *store.Message {
	if rec.Door != "webhook" && rec.Door != "activitypub" || len(rec.Outbox) != 1 || rec.Outbox[0].Name != "item" {
		return nil
	}
	return &rec.Outbox[0]
}

// IsEvent reports whether the record belongs to an inbox that hands its event on.
func IsEvent(rec *store.Record) bool { return event(rec) != nil }

// counted counts the attempts of the record.
func counted(f *Facts) (c Counts) {
	rec := f.Record
	switch {
	case rec.Mark != nil || unconfirmed(rec):
		return c
	case event(rec) != nil && rec.State.Terminal():
		switch m := event(rec); m.State {
		case store.MessageDelivered:
			c.Begun, c.Done = 1, 1
		default: // a try that failed may have arrived
			c.Begun, c.Unknown = m.Tries, m.Tries
		}
		return c
	}
	c.Begun = rec.Attempt
	c.Unknown = forgotten(rec)
	for i := range rec.Earlier {
		at := &rec.Earlier[i]
		c.ended(rec, at.Fence, at.Disposition, at.Settled)
	}
	if !rec.State.Terminal() {
		c.Unknown++
		return c
	}
	c.ended(rec, rec.Fence, rec.Disposition, rec.Settled)
	return c
}

// forgotten returns how many attempts the record no longer has.
func forgotten(rec *store.Record) int { return max(0, rec.Attempt-1-len(rec.Earlier)) }

func (c *Counts) ended(rec *store.Record, fence int64, d store.Disposition, by *store.Settled) {
	switch {
	case d == store.DispositionCompleted && by != nil:
		c.Told++
	case d == store.DispositionCompleted:
		c.Done++
	case d == store.DispositionAbandoned && !harmless(rec, fence, by):
		c.Unknown++
	}
}

// harmless reports whether the ledger shows that an attempt without an end did nothing that the
// next could repeat: the operation keeps all its effects there, never runs a call again without
// looking, and the attempt began none, or somebody settled them. A release means that nobody knows.
func harmless(rec *store.Record, fence int64, by *store.Settled) bool {
	if settled := effectsSettled(rec, by); by != nil && !settled || !rec.Policy.Ledger || rec.Policy.Retry {
		return false
	} else if settled {
		return true
	}
	for i := range rec.Effects {
		if rec.Effects[i].Fence == fence {
			return false
		}
	}
	return true
}
