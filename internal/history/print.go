package history

import (
	"fmt"
	"strings"
	"time"
)

// Print shows the history of a key with the faults of that time: seconds since the
// start at the left, -> is a request, <- its answer, * an arrival at the upstream,
// ** an effect, = why it is held, !! a fault.
func (l *Log) Print(key string, start int64) string {
	var b strings.Builder
	for _, e := range l.with(l.Of(key)) {
		fmt.Fprintf(&b, "%10.4f %s %s\n", time.Duration(e.At-start).Seconds(), e.Kind, strings.TrimRight(e.describe(), " "))
	}
	return b.String()
}

func (e *Event) describe() string {
	switch e.Kind {
	case Request:
		text := fmt.Sprintf("%-10s %-9s node %d payload %d fence %d holder %s", e.ID, e.Verb, e.Node, e.Payload, e.Fence, e.Holder)
		if e.Wait > 0 {
			text += fmt.Sprintf(" wait=%d", e.Wait)
		}
		return text + e.mark() + e.said()
	case Answer:
		return fmt.Sprintf("%-10s %-9s %s %d fence %d %s", e.ID, e.Verb, e.Word, e.Status, e.Fence, e.Text) + e.mark() + e.said()
	case Arrival:
		return fmt.Sprintf("arrival of %s payload %d", e.ID, e.Payload)
	case Reason:
		return fmt.Sprintf("held at node %d because %s", e.Node, e.Text)
	case Effect:
		return fmt.Sprintf("EFFECT by %s payload %d fence %d", e.ID, e.Payload, e.Fence) + e.said()
	}
	return e.Text
}

func (e *Event) mark() string {
	if e.Final {
		return " (after the faults)"
	}
	return ""
}

func (e *Event) said() string {
	if e.Outcome == "" {
		return ""
	}
	return " " + e.Outcome
}
