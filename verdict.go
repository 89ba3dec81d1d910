package semel

// Ending is how an attempt is to be ended after its handler has returned.
type Ending struct {
	// Disposition is what the attempt ends as: completed, rejected, aborted or
	// failed. Zero: its outcome is not known, and it is held.
	Disposition Disposition
	// Failure is why, where the attempt is not completed. Of a held attempt the
	// Message is the reason.
	Failure Failure
}

// EndingOf is the rule of [Engine.Do] about what a handler returns, for whoever
// runs handlers under attempts of an engine elsewhere. effectOpen says that the
// ledger has an effect which was started and has no result.
//
// A handler that was told to stop because its lease was lost says nothing by
// failing: where the rule gives failed, its holder records nothing.
func EndingOf(err error, effectOpen bool) Ending {
	if err == nil {
		if effectOpen {
			return Ending{Failure: Failure{Message: "the handler returned a result and left an effect without one"}}
		}
		return Ending{Disposition: DispositionCompleted}
	}
	end := Ending{Failure: Failure{Message: err.Error()}}
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
