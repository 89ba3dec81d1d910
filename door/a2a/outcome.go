package a2a

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/store"
)

// outcome is the recorded result of a message.
type outcome struct {
	// State is the task's state, by the table of states.
	State State `json:"state"`
	// Task is the id of the task; empty if the agent answered without one.
	Task string `json:"task,omitempty"`
	// Final says that Answer is complete. Otherwise ask the agent.
	Final bool `json:"final,omitempty"`
	// Answer is the agent's answer, in the form of the binding, without its envelope; empty if
	// you have to ask the agent.
	Answer json.RawMessage `json:"answer,omitempty"`
	// Error is the agent's error: JSON-RPC's, or the body in the REST binding, with its Status
	// and Media.
	Error  json.RawMessage `json:"error,omitempty"`
	Status int             `json:"status,omitempty"`
	// Tail is the white space after Answer or Error, which JSON doesn't keep.
	Tail string `json:"tail,omitempty"`
	// Stream is the mark of the recorded stream, see package streams, and Last the events that
	// end it; empty if there is none.
	Stream []byte `json:"stream,omitempty"`
	Last   string `json:"last,omitempty"`
}

// outcomeOf returns the outcome of a message that the agent has answered with a task or a
// message. If the task isn't in a final state, the message has only reached it; the agent knows
// how it ends.
func outcomeOf(e event, answer json.RawMessage) outcome {
	if e.kind == kindMessage {
		return outcome{State: Completed, Task: e.task, Final: true, Answer: answer}
	}
	return outcome{State: StateOf(e.state), Task: e.task, Final: answer != nil && terminal(e.state), Answer: answer}
}

// ending says how an attempt with this outcome ends. state is the task's in A2A's spelling. A task
// that has ended never starts again, so a failed one counts as refused for good, whatever the
// policy for failures: its message gets the same task.
func (o *outcome) ending(state string, maxResult int) semel.Ending {
	end := semel.Ending{Disposition: semel.DispositionCompleted, Result: o.result(maxResult)}
	if o.State == Failed {
		state = plainState(state)
		end.Disposition, end.Failure = semel.DispositionRejected, store.Failure{Code: state, Message: "the agent's task is " + state}
	}
	return end
}

// refusedEnding says how an attempt without a task ends, by what the answer proves.
func (o *outcome) refusedEnding(found judge.Finding, maxResult int) semel.Ending {
	end := semel.Ending{Failure: store.Failure{Code: found.Code, Message: found.Why()}}
	switch found.Verdict {
	case judge.Completed:
		end.Disposition, end.Result = semel.DispositionCompleted, o.result(maxResult)
	case judge.Rejected:
		end.Disposition, end.Result = semel.DispositionRejected, o.result(maxResult)
	case judge.Failed:
		end.Disposition, end.Result = semel.DispositionFailed, o.result(maxResult)
	case judge.Aborted:
		end.Disposition = semel.DispositionAborted
	default:
		end.Disposition = semel.DispositionAbandoned // held, unless the policy or the ledger allows another attempt
	}
	return end
}

// result returns the outcome's recorded form. It leaves out an answer that is too large: then
// the door asks the agent for the task, if there is one.
//
// The agent's own spelling stays, so that a replay is the first answer byte for byte:
// [json.Marshal] would write it in another way.
func (o *outcome) result(most int) semel.Result {
	small, _ := json.Marshal(outcome{State: o.State, Task: o.Task, Status: o.Status}) // it has only strings and a number
	name, said := "answer", o.Answer
	if len(o.Error) > 0 {
		name, said = "error", o.Error
	}
	tail := len(bytes.TrimRight(said, " \t\r\n"))
	data, _ := json.Marshal(outcome{State: o.State, Task: o.Task, Final: o.Final, Status: o.Status, Tail: string(said[tail:]), Stream: o.Stream, Last: o.Last})
	if tail > 0 {
		data = slices.Concat(data[:len(data)-1], []byte(`,"`+name+`":`), said[:tail], []byte("}"))
	}
	if len(data) > most || canon.Check(data, canon.Exact) != nil {
		data = small
	}
	return semel.Result{Data: data}
}

// recorded reads a recorded outcome. Somebody who settles a call by hand may give the task or
// the message itself as its result. It reports false for everything else.
func recorded(res semel.Result) (o outcome, ok bool) {
	if res.IsZero() || res.Tombstone || canon.Check(res.Data, canon.Exact) != nil {
		return o, false
	}
	if e := readEvent(res.Data); e.kind == kindTask || e.kind == kindMessage {
		return outcomeOf(e, res.Data), true
	}
	if json.Unmarshal(res.Data, &o) != nil || o.State == "" {
		return outcome{}, false
	}
	for _, said := range []*json.RawMessage{&o.Answer, &o.Error} {
		if len(*said) > 0 {
			*said = append(*said, o.Tail...)
		}
	}
	return o, true
}
