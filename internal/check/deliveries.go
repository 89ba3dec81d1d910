package check

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// crowd is how many clients there are in a storm and in a history.
const crowd = 20

// first: each new key runs.
func (j *judge) first(ctx context.Context) {
	before := j.effects(ctx, 0)
	a, b := j.settle(ctx, j.call("")), j.settle(ctx, j.call(""))
	fault := ""
	if !b.OK() {
		fault = fmt.Sprintf("a new key gets %s, after another key got %s", b, a)
	} else if n := j.effects(ctx, before+2) - before; j.counted && n != 2 {
		fault = fmt.Sprintf("%d effects of two calls with keys of their own", n)
	}
	j.effect("replay.first", fault)
}

// replay: later deliveries get the answer of the first.
func (j *judge) replay(ctx context.Context) {
	before := j.effects(ctx, 0)
	c := j.call("")
	first, again, third := j.deliver(ctx, c), j.deliver(ctx, c), j.deliver(ctx, c)
	j.once(ctx, "replay.once", before, first, again, third)
	for _, a := range []Answer{again, third} {
		if d := first.differs(a); d != "" {
			j.fail("replay.same", "the first delivery and a later one differ in %s", d)
			return
		}
	}
	j.judge("replay.same", "")
	m := j.profile.Marker
	fault := ""
	if x, y := first.Header.Get(m), again.Header.Get(m); x == "true" || y != "true" {
		fault = fmt.Sprintf("%s is %q in the first answer, and %q in a replay", m, x, y)
	}
	j.judge("replay.marked", fault)
}

// conflict: a key that comes again with another payload.
func (j *judge) conflict(ctx context.Context) {
	before := j.effects(ctx, 0)
	c := j.call("")
	first, second := j.settle(ctx, c), j.deliver(ctx, c.as(j.requests["other"]))
	fault, status := "", ""
	switch {
	case j.effects(ctx, before+1)-before > 1:
		fault = "another payload under the same key had an effect of its own, and got " + second.String()
	case !second.refuses():
		fault = "another payload under the same key gets " + second.String()
	case !slices.Contains(j.profile.Conflict, second.Status):
		status = fmt.Sprintf("the refusal is %s, and the document says %v", second, j.profile.Conflict)
	}
	j.judge("conflict.refused", fault)
	j.judge("conflict.status", status)
	j.judge("conflict.kept", first.differs(j.settle(ctx, c)))
}

// whileRunning: duplicates that come while the first delivery runs.
func (j *judge) whileRunning(ctx context.Context) {
	before := j.effects(ctx, 0)
	c := j.call("slow")
	first := make(chan Answer, 1)
	go func() { first <- j.deliver(ctx, c) }()
	var all []Answer
	for running := true; running; {
		select {
		case a := <-first:
			all, running = append(all, a), false
		case <-time.After(lingering):
			all = append(all, j.deliver(ctx, c))
		}
	}
	final := j.settle(ctx, c)
	j.once(ctx, "in-flight.once", before, append([]Answer{final}, all...)...)
	if len(all) == 1 {
		j.Unseen("in-flight.answer", fmt.Sprintf("the request takes less than %v: add a request '### slow'", lingering))
		j.Unseen("in-flight.status", "no duplicate came while the request ran")
		return
	}
	j.judge("in-flight.answer", j.neither(all, final))
	j.Unseen("in-flight.status", "duplicates wait, and get the first one's answer")
	for _, a := range all {
		if slices.Contains(j.profile.InFlight, a.Status) {
			j.judge("in-flight.status", "")
		} else if j.later(a) {
			j.fail("in-flight.status", "the refusal is %s, and the document says %v", a, j.profile.InFlight)
			return
		}
	}
}

// neither says which answer is neither the final one nor a refusal for the moment.
func (j *judge) neither(all []Answer, final Answer) string {
	for _, a := range all {
		if d := a.differs(final); d != "" && !j.later(a) {
			return fmt.Sprintf("one of %d deliveries gets %s, and later ones %s: they differ in %s", len(all), a, final, d)
		}
	}
	return ""
}

// storm: many deliveries of one call at once.
func (j *judge) storm(ctx context.Context) {
	for range 3 {
		j.exchanges = nil
		before := j.effects(ctx, 0)
		c := j.call("")
		answers := Together(crowd, func() Answer { return j.deliver(ctx, c) })
		final := j.settle(ctx, c)
		j.judge("storm.answers", j.neither(answers, final))
		j.once(ctx, "storm.once", before, append(answers, final)...)
		if j.state("storm") == Red {
			return
		}
	}
}
