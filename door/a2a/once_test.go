package a2a_test

import (
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

// TestOnce: a message that is sent again gets the task of the first, finished or not,
// whatever the binding and the form of the door.
func TestOnce(t *testing.T) {
	clause.Proves(t, "MAP-A2A.1")
	for form, open := range forms {
		for _, b := range all {
			for _, stream := range []bool{false, true} {
				name := form + ", " + b.name
				if stream {
					name += ", stream"
				}
				t.Run(name, func(t *testing.T) {
					w := open(t)
					for what, state := range map[string]string{"pay": "completed", "fail": "failed", "reject": "rejected", "ask": "input-required"} {
						w.runs.Store(0)
						first := w.send(b, "m-"+what, "", what, stream)
						if first.task() == "" || plain(first.state()) != state {
							t.Fatalf("%s: %d %s", what, first.status, first.text)
						}
						for range 2 {
							again := w.send(b, "m-"+what, "", what, stream)
							if again.task() != first.task() || plain(again.state()) != state {
								t.Errorf("%s: the task %s was %s, and then %s %s: %s", what, first.task(), first.state(), again.task(), again.state(), again.text)
							}
						}
						if n := w.runs.Load(); n != 1 {
							t.Errorf("%s ran %d times", what, n)
						}
					}
				})
			}
		}
	}
}

// plain is a state as version 0.3 has it.
func plain(state string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(state, "TASK_STATE_")), "_", "-")
}
