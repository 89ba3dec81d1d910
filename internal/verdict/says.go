package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/store"
)

// says returns the sentence about one call. It has no period, so that others can continue it.
func says(f *Facts, state State) string {
	var text strings.Builder
	text.WriteString(newest(f.Record, state) + waits(f, state) + earlier(f.Record))
	for i := range f.Before {
		text.WriteString("; before that it was " + f.Before[i].says())
	}
	if rec := f.Record; answerGone(f) {
		text.WriteString("; it ended at " + moment(rec.EndedAt) + ", and its answer was kept until " + moment(rec.AnswerUntil()))
	}
	if restored(f) {
		text.WriteString("; the store was restored from a backup at " + moment(f.Epoch) + ", and nobody knows what happened to it in between")
	}
	if !f.Known && state != SequenceMark {
		text.WriteString(unknown("an earlier record of it was"))
	}
	return text.String()
}

// says describes how an earlier record ended.
func (l *Life) says() string {
	text := "begun " + times(l.Begun) + ", " + howDone(l.Counts)
	if l.PurgedAt == 0 {
		return text + ", and its record was gone when it came again"
	}
	return text + ", and purged at " + moment(l.PurgedAt) + by(l.Who, l.Why)
}

func unknown(what string) string {
	return "; whether " + what + " purged is not known here"
}

// newest describes the state of the call by its newest attempt.
func newest(rec *store.Record, state State) string {
	begun := times(rec.Attempt)
	switch state {
	case SequenceMark:
		return "no call: it orders the numbers of a sequence"
	case Held:
		return "held after it was begun " + begun + ": nobody knows whether its work was done" + because(rec.HeldReason)
	case Silent:
		return "begun " + begun + ", and its holder is silent since " + moment(rec.UpdatedAt) + ": the next sweep decides what happens to it"
	case Running:
		return "being executed"
	case Released:
		return "released" + SettledBy(rec.Settled) + "; begun " + begun + ", nobody knows whether its work was done, and the next delivery runs"
	case Abandoned:
		if rec.Settled != nil {
			return "given back once its effects were settled" + SettledBy(rec.Settled) + "; begun " + begun + ", and the next delivery runs"
		}
		return "abandoned after it was begun " + begun + ": its holder went away, and the next delivery runs"
	case Settled:
		text := "settled as " + rec.Disposition.String() + SettledBy(rec.Settled) + "; begun " + begun
		if rec.Disposition == store.DispositionAborted {
			text += ", and the next delivery runs"
		}
		return text
	case Unconfirmed, Confirmed:
		return "not begun: "
	case Aborted:
		return "aborted after it was begun " + begun + ": nothing was done, and the next delivery runs" + Because(rec.Failure)
	case Undoing, Undone, UndoFailed:
		return executed(rec) + undo(rec.Compensation, state)
	case Queued, Parked, Discarded, Handled:
		return handed(event(rec), state)
	case Executed:
		return executed(rec)
	}
	return string(state) + " after it was begun " + begun + Because(rec.Failure)
}

// waits says what a call that nobody has begun waits for: its confirmation, or then its caller.
func waits(f *Facts, state State) string {
	switch by := "confirmed" + SettledBy(f.Record.Settled); {
	case state == Confirmed:
		return by + "; it runs when its caller asks again, until " + moment(confirmedUntil(f.Record))
	case state != Unconfirmed:
		return ""
	case f.Record.Expired(f.Now) && f.Record.Settled != nil:
		return by + ", and its caller didn't ask again in time"
	case f.Record.Expired(f.Now):
		return "nobody confirmed it in time"
	case f.StepUp:
		return "it waits for its confirmation and a further proof, which only its caller can give"
	}
	return "it waits for its confirmation, by its caller or an operator"
}

// executed says that the newest attempt did the work, or who says that it did.
func executed(rec *store.Record) string {
	switch {
	case rec.Settled != nil:
		return "settled as completed" + SettledBy(rec.Settled)
	case rec.Attempt == 1:
		return "executed once"
	}
	return fmt.Sprintf("executed by attempt %d", rec.Attempt)
}

func undo(c *store.Compensation, state State) string {
	switch state {
	case Undone:
		return ", and undone later" + because(c.Reason)
	case Undoing:
		return ", and it is being undone" + because(c.Reason)
	}
	return ", and undoing it failed" + Because(c.Failure)
}

// handed describes the state of an event.
func handed(m *store.Message, state State) string {
	tried := Tried(m)
	switch state {
	case Handled:
		return "accepted, and handed to " + m.Destination + tried
	case Queued:
		return "accepted and not handled yet" + tried
	case Parked:
		return "accepted and not handled: it is parked" + tried + Because(m.Failure)
	}
	return "accepted and not handled: it was discarded" + tried + Because(m.Failure)
}

// Tried says how often delivering a message failed; empty if it never did.
func Tried(m *store.Message) string {
	switch m.Tries {
	case 0:
		return ""
	case 1:
		return " after one failed try"
	}
	return " after " + strconv.Itoa(m.Tries) + " failed tries"
}

// earlier describes the attempts before the newest one.
func earlier(rec *store.Record) (text string) {
	if rec.Mark != nil {
		return ""
	}
	for i := range rec.Earlier {
		at := &rec.Earlier[i]
		name := "; attempt " + strconv.Itoa(at.Number)
		switch {
		case at.Disposition == store.DispositionAbandoned && effectsSettled(rec, at.Settled):
			text += name + " was given back once its effects were settled" + SettledBy(at.Settled)
		case at.Disposition == store.DispositionAbandoned && harmless(rec, at.Fence, at.Settled):
			text += name + " was abandoned before any effect"
		case at.Disposition == store.DispositionAbandoned && at.Settled != nil:
			text += name + " may have done it too: nobody knows (released" + SettledBy(at.Settled) + ")"
		case at.Disposition == store.DispositionAbandoned:
			text += name + " may have done it too: nobody knows"
		case at.Settled != nil:
			text += name + " was " + Decided(at.Disposition, at.Failure, at.Settled)
		default:
			text += name + " " + at.Disposition.String()
		}
	}
	if n := forgotten(rec); n > 0 {
		text += fmt.Sprintf("; %d earlier %s no longer kept", n, plural(n, "attempt is", "attempts are"))
	}
	return text
}

// howDone says how often the work was done.
func howDone(c Counts) string {
	switch {
	case c.Unknown > 0 && c.Done+c.Told > 0:
		return "done " + times(c.Done+c.Told) + " and maybe more often"
	case c.Unknown > 0:
		return "nobody knows whether it was done"
	case c.Told > 0:
		return "done " + times(c.Done+c.Told) + ", by somebody's word"
	case c.Done > 0:
		return "executed " + times(c.Done)
	}
	return "never completed"
}

// Changed says how somebody has left a record that they changed, and what its next delivery does if
// that runs.
func Changed(rec *store.Record) string {
	state := rec.State.String()
	switch {
	case rec.Held:
		state = "held"
	case unconfirmed(rec) && rec.Settled != nil:
		return "The call is confirmed. It runs once, when its caller sends it again until " + moment(confirmedUntil(rec)) + "."
	case rec.State == store.Failed:
		state = rec.Disposition.String()
	}
	text := "The record is " + state + "."
	if rec.Disposition != store.DispositionAbandoned {
		return text
	}
	text += " Its next delivery runs again"
	if slices.ContainsFunc(rec.Effects, func(e store.EffectRecord) bool { return e.State == store.EffectConfirmed }) {
		text += ", and gets the results of confirmed effects instead of repeating them"
	}
	return text + "."
}

// Decided says what somebody decided about an attempt instead of its holder, who, and why.
func Decided(d store.Disposition, f *store.Failure, s *store.Settled) string {
	how := "settled as " + d.String()
	switch {
	case d == store.DispositionAbandoned:
		how = "released"
	case f != nil && f.Code == "confirmation_required": // it never began
		how = "confirmed"
	}
	return how + SettledBy(s)
}

// SettledBy names who settled something, and why; empty if nobody did.
func SettledBy(s *store.Settled) string {
	if s == nil {
		return ""
	}
	if s.By == store.ByReconciler {
		who := "the reconciler"
		if s.Who != "" {
			who += ", which asked " + s.Who
		}
		return by(who, s.Reason)
	}
	return by(cmp.Or(s.Who, "an unnamed "+s.By), s.Reason)
}

func by(who, why string) string {
	if who != "" {
		who = " by " + who
	}
	return who + because(why)
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// Because returns why something failed, after a colon; empty without a failure.
func Because(f *store.Failure) string {
	if f == nil {
		return ""
	}
	return because(strings.Trim(f.Code+": "+f.Message, ": "))
}

func moment(at store.Instant) string { return at.Time().UTC().Format(time.DateTime) }

func times(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return strconv.Itoa(n) + " times"
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
