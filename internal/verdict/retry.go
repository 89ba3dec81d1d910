package verdict

import "github.com/semelhq/semel/store"

// retry says what the next delivery gets: one with the same payload, of the same caller, through the
// same door.
func retry(f *Facts, state State) string {
	rec := f.Record
	_, open := OpenEffect(rec)
	switch {
	case state == SequenceMark:
		return ""
	case rec.Expired(f.Now):
		return "is a new call: " + kept(rec) + " until " + moment(rec.ExpiresAt)
	case answerGone(f) && rec.Disposition == store.DispositionFailed && f.OnFailure == "":
		return "is told that it failed, without the answer, or runs it again: on_failure of the operation says which"
	case answerGone(f) && replayed(f):
		return "is told how it ended, without the answer, until " + moment(rec.ExpiresAt)
	case replayed(f) && rec.Result.Tombstone:
		return "is told how it ended, without the answer, which isn't kept" + until(rec)
	case replayed(f) && rec.Settled != nil && len(rec.Result.Data) == 0 && rec.Failure == nil:
		return "is told how it was settled, without an answer, because none was given" + until(rec)
	case rec.Disposition == store.DispositionCompleted:
		return "gets the recorded answer" + until(rec)
	case rec.Disposition == store.DispositionRejected:
		return "gets the recorded refusal" + until(rec)
	case rec.Disposition == store.DispositionFailed && f.OnFailure == "":
		return "gets the recorded failure, or runs it again: on_failure of the operation says which"
	case replayed(f):
		return "gets the recorded failure" + until(rec)
	case state == Held:
		return "is refused as held, until somebody settles it"
	case state == Running:
		return "is refused as in_flight, or waits for the answer"
	case state == Silent && (open || !rec.Policy.MayRunAgain()):
		return "is refused as held: nobody knows what its holder did"
	case restored(f) && f.Now.Sub(f.Epoch) < rec.Policy.Stays():
		return "is refused as held: the store was restored from a backup, and nobody knows what was done since"
	case state == Unconfirmed:
		return "is asked for the confirmation, or brings it"
	case state == Confirmed:
		return "runs it, without a confirmation of its own"
	}
	return "runs it again"
}

// replayed reports whether the call ended in a way that its next delivery is told of, for all that is
// known of the operation.
func replayed(f *Facts) bool {
	switch f.Record.Disposition {
	case store.DispositionCompleted, store.DispositionRejected:
		return true
	case store.DispositionFailed:
		return f.OnFailure != "" && f.OnFailure != "retry"
	}
	return false
}

// OpenEffect returns the name of the first effect that was started and has no result.
func OpenEffect(rec *store.Record) (name string, open bool) {
	for i := range rec.Effects {
		if rec.Effects[i].State == store.EffectStarted {
			return rec.Effects[i].Name, true
		}
	}
	return "", false
}

func until(rec *store.Record) string {
	if rec.ExpiresAt == 0 {
		return ""
	}
	return ", until " + moment(rec.AnswerUntil())
}

// answerGone reports whether a call is remembered, and its window is over.
func answerGone(f *Facts) bool {
	rec := f.Record
	return rec.State.Terminal() && rec.Policy.Remember > rec.Policy.Window && !rec.Unfinished() && f.Now >= rec.AnswerUntil()
}

func kept(rec *store.Record) string {
	if rec.AnswerUntil() < rec.ExpiresAt {
		return "this one was remembered"
	}
	return "the outcome was kept"
}
