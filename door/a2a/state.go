package a2a

import "strings"

// State says how far a task is, in the words of the idempotency map (MAP-A2A.1). Records,
// refusals and documents use it.
type State string

// The states.
const (
	Pending    State = "pending"
	InProgress State = "in_progress"
	Completed  State = "completed"
	Failed     State = "failed"
)

// states is the table, by A2A's own names for states.
var states = map[string]State{
	"submitted":      Pending,
	"working":        InProgress,
	"input-required": InProgress,
	"auth-required":  InProgress,
	"completed":      Completed,
	"failed":         Failed,
	"canceled":       Failed,
	"rejected":       Failed,
}

// StateOf finds A2A's state of a task in the table, as any version of A2A spells it:
// TASK_STATE_INPUT_REQUIRED or input-required. An unknown state counts as in progress: nobody
// may take it for an end.
func StateOf(name string) State {
	if s, ok := states[plainState(name)]; ok {
		return s
	}
	return InProgress
}

// plainState returns a state in version 0.3's JSON-RPC spelling.
func plainState(name string) string {
	name = strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "TASK_STATE_")), "_", "-")
	if name == "cancelled" { // in the REST binding of 0.3
		return "canceled"
	}
	return name
}

// terminal reports whether no state follows this one.
func terminal(name string) bool { return StateOf(name) == Completed || StateOf(name) == Failed }

// paused reports whether the agent waits for its caller in a state, so that its answer ends
// there.
func paused(name string) bool {
	name = plainState(name)
	return name == "input-required" || name == "auth-required"
}
