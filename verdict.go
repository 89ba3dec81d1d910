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
// programs that run handlers under attempts of an engine elsewhere. effectOpen says that
// the ledger has an effect that was started and has no result.
//
// If the lease was lost and the handler was told to stop, its failure means nothing:
// don't record an ending that is failed.
func EndingOf(err error, effectOpen bool) Ending {
	if err == nil {
		if effectOpen {
			return Ending{Failure: store.Failure{Message: "the handler returned a result and left an effect without one"}}
		}
		return Ending{Disposition: DispositionCompleted}
	}
	end := Ending{Failure: store.Failure{Message: err.Error()}}
	v, marked := verdictOf(err)
	switch {
	case marked && v.disposition == DispositionRejected:
		end.Disposition, end.Failure.Code = DispositionRejected, v.code
	case marked && v.disposition == DispositionAborted && !effectOpen:
		end.Disposition = DispositionAborted
	case !marked && !effectOpen:
		end.Disposition = DispositionFailed
	}
	return end
}
