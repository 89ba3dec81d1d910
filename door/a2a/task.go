package a2a

import (
	"encoding/json"

	"github.com/semelhq/semel/internal/jsonscan"
)

// event is the content of an agent's answer, or of an event in its stream.
type event struct {
	kind  string // see the kinds; empty: unknown
	task  string // the id of its task, if it has one
	state string // that task's, as the agent spells it
}

// The kinds of events, as version 0.3 names them.
const (
	kindTask     = "task"
	kindMessage  = "message"
	kindStatus   = "status-update"
	kindArtifact = "artifact-update"
)

// wrappers are the members that hold an event in version 1.0, and in the REST binding of 0.3,
// by the event's kind.
var wrappers = map[string]string{
	"task": kindTask, "message": kindMessage, "msg": kindMessage,
	"statusUpdate": kindStatus, "status_update": kindStatus, "artifactUpdate": kindArtifact, "artifact_update": kindArtifact,
}

// readEvent finds out what an agent's strict JSON means, in any of its forms.
func readEvent(text []byte) event {
	kind, _ := jsonscan.Text(jsonscan.Member(text, "kind"))
	body := text
	if kind == "" {
		for name, value := range jsonscan.Members(text) {
			if k, ok := wrappers[string(name)]; ok && len(value) > 0 && value[0] == '{' {
				kind, body = k, value
				break
			}
		}
	}
	e := event{kind: kind}
	switch kind {
	case kindTask:
		e.task, _ = jsonscan.Text(jsonscan.Member(body, "id"))
	case kindMessage, kindStatus, kindArtifact:
		e.task, _ = textOf(body, "taskId", "task_id")
	default:
		return event{}
	}
	e.state, _ = jsonscan.Text(jsonscan.At(body, "status", "state"))
	if (kind == kindTask || kind == kindStatus) && (e.task == "" || e.state == "") {
		return event{} // nobody could ask for it
	}
	return e
}

// final reports whether the event may be the agent's last, so that it is only sent once the outcome
// is recorded, or something follows.
func (e *event) final() bool { return e.over() || paused(e.state) }

// over reports whether nothing may follow the event.
func (e *event) over() bool { return e.kind == kindMessage || terminal(e.state) }

// answerWith makes the answer to a message from the agent's task: bare in 0.3's JSON-RPC
// binding, where objects name their kind, and as a member elsewhere.
func answerWith(task []byte) json.RawMessage {
	if jsonscan.Member(task, "kind") != nil || jsonscan.Member(task, "task") != nil {
		return task
	}
	return append(append([]byte(`{"task":`), task...), '}')
}
