package history

import (
	"math"

	"github.com/anishathalye/porcupine"
)

// A step is what happened to a call at one moment between two: the model in model.go
// says what it means.
type step struct {
	kind    stepKind
	id      string // of the request, for people
	print   int    // the payload
	attempt string // names the right to execute that is given or used
	fence   int64
	holder  string
	outcome string // of an end that lasts
	to      phase  // where an end leads
	ghosts  [maxPayload + 1]bool
	// pending steps may have happened, or not: their answers have not come.
	pending bool
}

// maxPayload is the highest number of a payload.
const maxPayload = 3

type stepKind string

const (
	stepGrant    stepKind = "is given the right to execute"
	stepUse      stepKind = "renews, or is told to make its effect,"
	stepTell     stepKind = "tells what became of its effect"
	stepEnd      stepKind = "ends"
	stepReplay   stepKind = "gets the outcome"
	stepInFlight stepKind = "is told to wait"
	stepHeld     stepKind = "is told that it is held"
	stepConflict stepKind = "is told that the payload is another"
)

// never is the time of an answer that did not come.
const never = math.MaxInt64

// steps makes the history of a call into what porcupine understands. Beginnings of
// which nobody knows what became are no steps: each may have been kept at any time
// since it was sent, which the steps after it are told by their ghosts.
func (h *call) steps() []porcupine.Operation {
	b := builder{requests: h.requests(), ends: map[string]*porcupine.Operation{}, arrivals: map[string]Event{}, outcomes: map[string]Event{}}
	for p := range b.ghosts {
		b.ghosts[p] = never
	}
	answers := map[string]Event{}
	for _, e := range h.events {
		switch e.Kind {
		case Answer:
			answers[e.ID] = e
		case Arrival:
			b.arrivals[e.ID] = e
		}
		if e.Kind == Effect && h.rules.Routed || e.Kind == Arrival && e.Outcome != "" {
			b.outcomes[e.ID] = e
		}
	}
	for _, r := range h.of(Request) {
		a, ok := answers[r.ID]
		if !ok {
			a = Event{At: never, Word: None}
		}
		switch {
		case r.Verb == Begin:
			b.begin(r, a)
		case r.Verb == Call:
			b.call(r, a)
		case isEnd(r.Verb):
			b.end(r, a)
		case a.Word == OK && r.Verb == Settle:
			b.add(r.At, a.At, &step{kind: stepTell, id: r.ID, attempt: attemptOf(r.Fence), fence: r.Fence})
		case a.Word == OK:
			b.add(r.At, a.At, &step{kind: stepUse, id: r.ID, attempt: attemptOf(r.Fence), fence: r.Fence})
		}
	}
	return b.finish()
}

// builder collects the steps of one call.
type builder struct {
	requests map[string]Event
	arrivals map[string]Event // by the id of the call
	outcomes map[string]Event // what the upstream has done or said for a call
	ends     map[string]*porcupine.Operation
	ops      []*porcupine.Operation
	ghosts   [maxPayload + 1]int64 // since when a claim of a payload may be there
}

func (b *builder) add(from, to int64, s *step) *porcupine.Operation {
	op := &porcupine.Operation{Input: s, Call: from, Return: max(from, to)}
	b.ops = append(b.ops, op)
	return op
}

// maybe notes that a claim may have been kept.
func (b *builder) maybe(r Event) { b.ghosts[r.Payload] = min(b.ghosts[r.Payload], r.At) }

func (b *builder) begin(r, a Event) {
	s := &step{id: r.ID, print: r.Payload}
	switch a.Word {
	case Execute:
		s.kind, s.attempt, s.fence, s.holder = stepGrant, attemptOf(a.Fence), a.Fence, r.Holder
	case Replay:
		s.kind, s.outcome = stepReplay, a.Outcome
	default:
		if s.kind = refusal(a.Word); s.kind == "" {
			b.maybe(r)
			return
		}
		if s.kind == stepHeld {
			b.maybe(r) // its own claim may be what is held; Summary counts those
		}
	}
	b.add(r.At, a.At, s)
}

// refusal is the step of an answer that says how the call stands.
func refusal(word string) stepKind {
	return map[string]stepKind{InFlight: stepInFlight, Held: stepHeld, Conflict: stepConflict}[word]
}

// call is a request through the proxy. Its claim and its end are two steps.
func (b *builder) call(r, a Event) {
	arrival, arrived := b.arrivals[r.ID]
	done, acted := b.outcomes[r.ID]
	s := &step{id: r.ID, print: r.Payload}
	if kind := refusal(a.Word); kind != "" && !arrived {
		if s.kind = kind; kind == stepHeld {
			b.maybe(r)
		}
		b.add(r.At, a.At, s)
		return
	}
	if a.Word == Replay && !arrived {
		s.kind, s.outcome = stepReplay, a.Outcome
		b.add(r.At, a.At, s)
		return
	}
	if !arrived {
		b.maybe(r)
		return
	}
	s.kind, s.attempt = stepGrant, r.ID
	b.add(r.At, arrival.At, s)
	e := &step{kind: stepEnd, id: r.ID, print: r.Payload, attempt: r.ID, to: open}
	switch {
	case a.Word == Answered:
		e.to, e.outcome = final, a.Outcome
		b.add(arrival.At, a.At, e)
	case a.Word == Failed:
		b.add(arrival.At, a.At, e)
	case acted:
		e.to, e.outcome, e.pending = final, done.Outcome, true
		b.add(done.At, never, e)
	case arrival.Word == Failed:
		e.pending = true
		b.add(arrival.At, never, e)
	}
}

// leadsTo is where ends lead.
var leadsTo = map[string]phase{Complete: final, Reject: final, Fail: final, Abort: open, Hold: held}

// end is an end of an attempt. One that is sent again is the same step, which has
// happened once any of them is answered.
func (b *builder) end(r, a Event) {
	name := r.Verb + attemptOf(r.Fence)
	op, again := b.ends[name]
	if !again {
		op = b.add(r.At, never, &step{
			kind: stepEnd, id: r.ID, attempt: attemptOf(r.Fence), fence: r.Fence, outcome: r.Outcome, to: leadsTo[r.Verb], pending: true,
		})
		b.ends[name] = op
	}
	if s := op.Input.(*step); a.Word == OK && s.pending {
		s.pending = false
		op.Return = max(op.Call, a.At)
	}
}

// finish tells every step which claims may have been kept before it has ended, and
// leaves out what says nothing new.
func (b *builder) finish() []porcupine.Operation {
	var ops []porcupine.Operation
	for i, op := range b.ops {
		if b.idle(i) {
			continue
		}
		s := *op.Input.(*step)
		for p, since := range b.ghosts {
			s.ghosts[p] = since < op.Return
		}
		full := *op
		full.Input = s
		ops = append(ops, full)
	}
	return ops
}

// idle reports whether a step says nothing that another does not say: somebody was
// told the same, and asked later and was answered sooner. Whatever explains that
// answer explains this one. Without those the search is short, also where dozens ask
// at the same time.
func (b *builder) idle(i int) bool {
	op, s := b.ops[i], b.ops[i].Input.(*step)
	if !s.looks() {
		return false
	}
	for j, other := range b.ops {
		o := other.Input.(*step)
		within := op.Call <= other.Call && other.Return <= op.Return
		equal := op.Call == other.Call && other.Return == op.Return
		if i != j && within && (!equal || j < i) && o.kind == s.kind && o.print == s.print && o.outcome == s.outcome {
			return true
		}
	}
	return false
}

// looks reports whether a step only sees how the call stands.
func (s *step) looks() bool {
	switch s.kind {
	case stepReplay, stepInFlight, stepHeld, stepConflict:
		return true
	}
	return false
}
