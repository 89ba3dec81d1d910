package semel

import "github.com/semelhq/semel/store"

// Ending says how to end an attempt after its handler has returned.
type Ending struct {
	// Disposition is how the attempt ends. Abandoned gives it up without an outcome;
	// zero means that the outcome is unknown, and the attempt is held.
	Disposition store.Disposition
	// Result is the answer, for completed, rejected and failed.
	Result Result
	// Failure is why the attempt isn't completed. If it is held or abandoned, only
	// Message is used, as the reason for people.
	Failure store.Failure
	// Unmarked is set by [EndingOf] if the handler's error has no mark. If the handler was
	// told to stop because its lease was lost, such an error says nothing about the work,
	// nor does a failure: don't record it. The lease's end, the ledger and the policy
	// decide.
	Unmarked bool
}

// event is what the ending does to an attempt. Abandoned counts as held here: whether
// the attempt may run again depends on its record.
func (end *Ending) event() event {
	switch end.Disposition {
	case DispositionCompleted:
		return evComplete
	case DispositionRejected:
		return evReject
	case DispositionFailed:
		return evFail
	case DispositionAborted:
		return evAbort
	}
	return evHold
}

// failure is the failure to record; nil if the attempt is completed.
func (end *Ending) failure() *store.Failure {
	if end.Disposition == DispositionCompleted {
		return nil
	}
	return &end.Failure
}

// EndingOf is the rule by which [Engine.Do] ends an attempt after its handler, for
// programs that run handlers under attempts of an engine elsewhere. The effects are those
// in the attempt's ledger. With keep, which a financial operation asks for, an error
// without a mark is a failure even if the ledger shows that nothing was done.
//
// If the lease was lost and the handler was told to stop, see [Ending].Unmarked.
func EndingOf(err error, effects []store.EffectRecord, keep bool) Ending {
	var open, done bool
	for i := range effects {
		open = open || effects[i].State == store.EffectStarted
		done = done || effects[i].State == store.EffectConfirmed
	}
	if err == nil {
		if open {
			return Ending{Failure: store.Failure{Message: "the handler returned a result and left an effect without one"}}
		}
		return Ending{Disposition: DispositionCompleted}
	}
	v, marked := verdictOf(err)
	end := Ending{Failure: store.Failure{Message: err.Error()}, Unmarked: !marked}
	switch {
	case marked && v.disposition == DispositionRejected:
		end.Disposition, end.Failure.Code = DispositionRejected, v.code
	case open:
	case marked:
		end.Disposition = v.disposition
	case done || keep:
		end.Disposition = DispositionFailed
	default:
		end.Disposition = DispositionAborted
	}
	return end
}
