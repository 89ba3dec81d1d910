package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/semelhq/semel"
)

// The model of one call as deliveries and holders see it. What they cannot see,
// such as renewals that happen by themselves, is not in it.
type phase string

const (
	phaseFree    phase = "free"    // no record
	phaseRunning phase = "running" // an attempt that some client holds
	phaseGhost   phase = "ghost"   // a claim whose caller was told an error; nobody executes it
	phaseHeld    phase = "held"
	phaseOpen    phase = "open"  // ended, and the next delivery runs again
	phaseFinal   phase = "final" // ended, and every delivery gets the outcome
)

type claimState struct {
	phase  phase
	fence  int64 // of the newest attempt that is known
	print  string
	since  time.Duration // the lease began then or later
	ending string        // how the attempt with this fence ended
	before string        // the attempts before this one that ended so that another could follow
}

// endedAttempt is an attempt that ended, as it stands in claimState.before.
func endedAttempt(fence int64, ending string) string { return fmt.Sprintf("%d %s\n", fence, ending) }

// earlier are the attempts that the next one of st follows.
func (st claimState) earlier() string {
	if st.phase == phaseOpen {
		return st.before + endedAttempt(st.fence, st.ending)
	}
	return st.before
}

type beginInput struct {
	op     *semel.Operation
	key    string
	print  string
	called time.Duration
}

type beginOutput struct {
	unknown  bool
	decision semel.Decision
	fence    int64
	outcome  string // of a replay: how it ended, with the bytes of its result
	returned time.Duration
}

// endInput is also a renewal, whose ending is empty.
type endInput struct {
	op     *semel.Operation
	key    string
	fence  int64
	kind   semel.Disposition // zero for Hold
	ending string
	renew  bool
	called time.Duration
}

type endOutput string

const (
	endOK      endOutput = "ok"
	endLost    endOutput = "lost"    // somebody else has the right to execute
	endAlready endOutput = "already" // the attempt has ended before
	endUnknown endOutput = "unknown"
)

// clockSlack is how far the store's clock may run off that of the checker
// during one lease.
const clockSlack = time.Millisecond

// stepBegin returns the states in which a delivery that got out may have left
// the call; none if it could not have got that.
func stepBegin(st claimState, in beginInput, out beginOutput) []claimState {
	retry := in.op.OnAbandoned == semel.RetryAbandoned
	samePrint := st.phase == phaseFree || st.print == in.print
	leaseOver := out.returned+clockSlack >= st.since+in.op.Lease
	mayRun := samePrint && (st.phase == phaseFree || st.phase == phaseOpen || st.phase == phaseGhost ||
		st.phase == phaseRunning && retry && leaseOver)
	if out.unknown {
		next := []claimState{st}
		if mayRun {
			next = append(next, claimState{phase: phaseGhost, fence: st.fence, print: in.print, before: st.earlier()})
		}
		if samePrint && st.phase == phaseRunning && !retry && leaseOver {
			held := st
			held.phase = phaseHeld
			next = append(next, held)
		}
		return next
	}
	ok := false
	next := st
	switch out.decision {
	case semel.Execute:
		ok = mayRun && out.fence > st.fence
		next = claimState{phase: phaseRunning, fence: out.fence, print: in.print, since: in.called, before: st.earlier()}
	case semel.Replay:
		ok = samePrint && st.phase == phaseFinal && st.ending == out.outcome
	case semel.InFlight:
		ok = samePrint && (st.phase == phaseRunning || st.phase == phaseGhost)
	case semel.Held:
		ok = samePrint && (st.phase == phaseHeld || !retry && (st.phase == phaseGhost || st.phase == phaseRunning && leaseOver))
		next.phase = phaseHeld
		if !ok && mayRun && !retry && out.returned+clockSlack >= in.called+in.op.Lease {
			// Its own claim arrived, took longer than its lease, and was held before it
			// could be renewed: then it is not given out any more.
			ok, next = true, claimState{phase: phaseHeld, fence: out.fence, print: in.print, before: st.earlier()}
		}
	case semel.Conflict:
		ok = !samePrint
	}
	if !ok {
		return nil
	}
	return []claimState{next}
}

// stepEnd is stepBegin for what a holder does.
func stepEnd(st claimState, in endInput, out endOutput) []claimState {
	current := st.fence == in.fence && (st.phase == phaseRunning || st.phase == phaseHeld)
	if in.renew {
		// A holder that could not renew in time gives up by itself, and what
		// an unknown renewal prolongs only makes others wait longer.
		if out != endOK {
			return []claimState{st}
		}
		if !current || st.phase == phaseHeld {
			return nil
		}
		st.since = in.called
		return []claimState{st}
	}
	next := st
	next.ending = in.ending
	switch {
	case in.kind == 0:
		next.phase = phaseHeld
	case in.kind == semel.DispositionAborted, in.kind == semel.DispositionFailed && in.op.OnFailure == semel.RetryFailure:
		next.phase = phaseOpen
	default:
		next.phase = phaseFinal
	}
	ended := st.fence == in.fence && (st.phase == phaseOpen || st.phase == phaseFinal)
	switch {
	case out == endOK && current:
		return []claimState{next}
	case out == endOK && ended && st.ending == in.ending:
		return []claimState{st} // ended by a first try whose result was unknown
	case out == endOK && strings.Contains(st.before, endedAttempt(in.fence, in.ending)):
		// So was this one, and its holder learned so, when it renewed, before
		// somebody else was given the right.
		return []claimState{st}
	case out == endLost && !current, out == endAlready && ended:
		return []claimState{st}
	case out == endUnknown && current:
		return []claimState{st, next}
	case out == endUnknown:
		return []claimState{st}
	}
	return nil
}

// claimModel is the sequential meaning of deliveries and ends.
var claimModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{claimState{phase: phaseFree}} },
	Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
		return partition(ops, func(op porcupine.Operation) string {
			if in, ok := op.Input.(beginInput); ok {
				return in.op.Name + in.key
			}
			in := op.Input.(endInput)
			return in.op.Name + in.key
		})
	},
	Step: func(state, input, output any) []any {
		var next []claimState
		switch in := input.(type) {
		case beginInput:
			next = stepBegin(state.(claimState), in, output.(beginOutput))
		case endInput:
			next = stepEnd(state.(claimState), in, output.(endOutput))
		}
		states := make([]any, len(next))
		for i, st := range next {
			states[i] = st
		}
		return states
	},
}).ToModel()

// describe shows one operation of a history.
func describe(op porcupine.Operation) string {
	switch in := op.Input.(type) {
	case beginInput:
		out := op.Output.(beginOutput)
		if out.unknown {
			return fmt.Sprintf("[%d-] client %d begins with %s at %v: error", op.Call, op.ClientId, in.print, in.called)
		}
		return fmt.Sprintf("[%d-%d] client %d begins with %s at %v: %s, fence %d, %q, at %v",
			op.Call, op.Return, op.ClientId, in.print, in.called, out.decision, out.fence, out.outcome, out.returned)
	case endInput:
		what := "ends as " + in.ending
		if in.renew {
			what = "renews"
		}
		return fmt.Sprintf("[%d-%d] client %d %s under fence %d at %v: %s", op.Call, op.Return, op.ClientId, what, in.fence, in.called, op.Output)
	}
	return ""
}
