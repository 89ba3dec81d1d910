package history

import (
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// A step is something that happened to a call at one moment between its request and its answer.
// model.go says what each step means.
type step struct {
	kind    stepKind
	id      string // of the request, for people
	print   int    // the payload
	attempt string // the attempt that the step begins or uses
	fence   int64
	holder  string
	outcome string // of a final end
	to      phase  // where an end leads
	begun   bool   // an end after which something may have happened
	ghosts  [maxPayload + 1]bool
	// began is the earliest time at which the lease that the step begins or extends may have
	// begun. Leases that began by leaseOver may be over at the step; if leases aren't timed,
	// all of them may.
	began, leaseOver int64
	harmless         bool // an end after which strangers may use the key, because nothing has happened
	forgets          bool // an earlier program may have superseded a number with an outcome, see [Log.Earlier]
	// pending steps may have happened or not, because there was no answer.
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
	stepLost     stepKind = "is told that somebody else has the right"
	stepEnded    stepKind = "is told that its attempt has ended"
	stepReplay   stepKind = "gets the outcome"
	stepInFlight stepKind = "is told to wait"
	stepHeld     stepKind = "is told that it is held"
	stepConflict stepKind = "is told that the payload is another"
	stepPassed   stepKind = "is told that a later number has begun"
	stepGuest    stepKind = "uses the key with another credential"
	stepLeave    stepKind = "is refused by the upstream"
)

// clockSlack is how far the clock that judges a lease may drift from the clock of the log during
// the lease.
const clockSlack = int64(time.Millisecond)

// never is the time of an answer that didn't come.
const never = math.MaxInt64

// steps converts the history of a call for porcupine. Claims with an unknown result
// aren't steps: each may have been written at any time since it was sent, which the ghosts
// of later steps say.
func (h *call) steps() []porcupine.Operation {
	b := builder{rules: h.rules, forgets: h.forgotten(Superseded), lease: int64(h.lease), requests: h.requests(), ends: map[string]*porcupine.Operation{}, arrivals: map[string]Event{}, outcomes: map[string]Event{}}
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
	rules    Rules
	forgets  bool
	lease    int64 // in nanoseconds; zero: not known
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

// maybe notes that a claim may have been written.
func (b *builder) maybe(r Event) { b.ghosts[r.Payload] = min(b.ghosts[r.Payload], r.At) }

// outlived notes that a claim may have been written although its request got another answer, that of
// its next claim too: the node may have learned that only when the lease was over and others had
// gone on.
func (b *builder) outlived(r, a Event) {
	if b.lease > 0 && a.At-r.At >= b.lease {
		b.maybe(r)
	}
}

func (b *builder) begin(r, a Event) {
	s := &step{id: r.ID, print: r.Payload}
	switch a.Word {
	case Execute:
		s.kind, s.attempt, s.fence, s.holder = stepGrant, attemptOf(a.Fence), a.Fence, r.Holder
	case Replay:
		s.kind, s.outcome = stepReplay, a.Outcome
	default:
		if s.kind = b.refusal(a.Word); s.kind == "" {
			b.maybe(r)
			return
		}
		if b.givenBack(s.kind) || s.kind == stepHeld && !b.rules.Timed {
			b.maybe(r) // its own claim may be what is held; Summary counts those
		}
	}
	b.outlived(r, a)
	b.add(r.At, a.At, s)
}

// refusal is the step of an answer that says how the call stands. Another number, or a
// stranger's call, may be the one in flight or held.
func (b *builder) refusal(word string) stepKind {
	if (b.rules.Numbered || b.rules.Shared) && (word == InFlight || word == Held) {
		return ""
	}
	return map[string]stepKind{InFlight: stepInFlight, Held: stepHeld, Conflict: stepConflict, Superseded: stepPassed}[word]
}

// givenBack reports whether a delivery that is refused like this may have had a claim before: one that
// lost against another number.
func (b *builder) givenBack(kind stepKind) bool {
	return kind == stepPassed || kind == stepConflict && b.rules.Numbered
}

// call is a request through the proxy. Its claim and its end are two steps.
func (b *builder) call(r, a Event) {
	arrival, arrived := b.arrivals[r.ID]
	done, acted := b.outcomes[r.ID]
	s := &step{id: r.ID, print: r.Payload}
	if r.Caller != "" {
		if arrived {
			b.guest(r, arrival, a)
		}
		return
	}
	if kind := b.refusal(a.Word); kind != "" && !arrived {
		if s.kind = kind; kind == stepHeld || b.givenBack(kind) {
			b.maybe(r)
		}
		b.outlived(r, a)
		b.add(r.At, a.At, s)
		return
	}
	if a.Word == Replay && !arrived {
		b.outlived(r, a)
		s.kind, s.outcome = stepReplay, a.Outcome
		b.add(r.At, a.At, s)
		return
	}
	if !arrived {
		b.maybe(r)
		return
	}
	s.kind, s.attempt = stepGrant, r.ID
	b.outlived(r, arrival)
	b.add(r.At, arrival.At, s)
	e := &step{kind: stepEnd, id: r.ID, print: r.Payload, attempt: r.ID, to: open, harmless: done.Kind == Arrival}
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

// guest is a stranger's request that has arrived. Where its answer was lost, its call may be
// held, and keep the key.
func (b *builder) guest(r, arrival, a Event) {
	b.add(r.At, arrival.At, &step{kind: stepGuest, id: r.ID, attempt: r.ID})
	leave := &step{kind: stepLeave, id: r.ID, attempt: r.ID}
	if a.Word != Answered {
		leave.pending, a.At = true, never
	}
	b.add(arrival.At, a.At, leave)
}

// leadsTo is where ends lead.
var leadsTo = map[string]phase{Complete: final, Reject: final, Fail: final, Abort: open, Hold: held}

// end is an end of an attempt. One that is sent again is the same step, which has
// happened once any of them is answered.
func (b *builder) end(r, a Event) {
	kind := map[string]stepKind{Lost: stepLost, Ended: stepEnded}[a.Word]
	if b.rules.Timed && kind != "" {
		b.add(r.At, a.At, &step{kind: kind, id: r.ID, attempt: attemptOf(r.Fence)})
		if a.Word != Lost || r.Verb != Abort {
			return
		}
		// Its first try may have been applied and its answer lost, before another payload began
		// afresh: nothing in the record tells of the attempt any more.
	}
	name := r.Verb + attemptOf(r.Fence)
	op, again := b.ends[name]
	if !again {
		to := leadsTo[r.Verb]
		if r.Verb == Fail && b.rules.Retries {
			to = open
		}
		op = b.add(r.At, never, &step{
			kind: stepEnd, id: r.ID, attempt: attemptOf(r.Fence), fence: r.Fence, outcome: r.Outcome, to: to, begun: r.Verb != Abort, pending: true,
		})
		b.ends[name] = op
	}
	if s := op.Input.(*step); a.Word == OK && s.pending {
		s.pending = false
		op.Return = max(op.Call, a.At)
	}
}

// finish adds to every step the claims that may have been written before it ended, and
// leaves out redundant steps.
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
		s.leaseOver, s.forgets = never, b.forgets
		if b.rules.Timed {
			s.began, s.leaseOver = op.Call, op.Return-b.lease+clockSlack
		}
		full := *op
		full.Input = s
		ops = append(ops, full)
	}
	return ops
}

// idle reports whether a step is redundant: another request was sent later, was answered
// sooner, and got the same answer, so every order that explains that one explains this
// one. Without redundant steps the search is short, even for dozens of concurrent
// requests.
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

// looks reports whether a step only reads the state of the call.
func (s *step) looks() bool {
	switch s.kind {
	case stepReplay, stepInFlight, stepHeld, stepConflict, stepPassed:
		return true
	}
	return false
}
