package history

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// phase is the state of a call as its clients can observe it.
type phase string

const (
	free    phase = "free"    // no record
	running phase = "running" // an attempt is running
	held    phase = "held"
	open    phase = "open"   // ended so that the next delivery runs
	final   phase = "final"  // ended, and every delivery gets the outcome
	passed  phase = "passed" // a later number has begun, and this one never will
)

// state is that of one call.
type state struct {
	phase phase
	// untold: the holder never got the answer to its claim, so the node may release the claim
	// at any time.
	untold  bool
	attempt string // the newest one whose holder got the answer
	fence   int64
	holder  string
	print   int
	outcome string
	// begun: something may have happened by an attempt that has ended. Until then another payload
	// may begin the call anew.
	begun bool
	// harmless: the outcome proves that nothing has happened, so strangers may use the key.
	// guest is the attempt of the stranger who does.
	harmless bool
	guest    string
	since    int64 // its lease began then or later; zero where leases are not timed
}

// alone is what may happen without any client before a step: an abandoned attempt is held,
// or the call is open again if the operation allows that; an unanswered claim is released;
// and a claim that seemed lost was written after all.
func (st state) alone(rules Rules, s *step) []state {
	all := []state{st}
	add := func(p phase, untold bool, print int, begun bool) {
		next := st
		next.phase, next.untold, next.print, next.begun = p, untold, print, begun
		if !slices.Contains(all, next) {
			all = append(all, next)
		}
	}
	abandoned := st.phase == running && st.since <= s.leaseOver
	again := abandoned && (rules.Repeats || rules.Reopens)
	holds := !rules.Timed || !rules.Repeats
	if abandoned && holds {
		add(held, st.untold, st.print, st.begun)
	}
	if st.untold || again {
		add(open, false, st.print, st.begun || !st.untold)
	}
	for print, may := range s.ghosts {
		if may && st.phase == passed && st.print == 0 {
			add(passed, false, print, st.begun)
		}
		if may && (st.phase == free || st.anew() || st.untold && !st.begun || print == st.print && (st.phase == open || st.untold || again)) {
			add(running, true, print, st.begun)
			if holds {
				add(held, true, print, st.begun)
			}
			add(open, false, print, st.begun)
		}
	}
	return all
}

// anew reports whether any payload may begin the call.
func (st state) anew() bool { return st.phase == open && !st.begun }

// after is the state after a step. It isn't ok if the step is impossible.
func (st state) after(s *step) (next state, ok bool) {
	same := st.phase != free && st.print == s.print
	mine := !st.untold && st.attempt == s.attempt && (st.phase == running || st.phase == held)
	next = st
	switch s.kind {
	case stepGrant:
		if mine && st.phase == running && st.holder == s.holder && s.holder != "" {
			return st, true
		}
		// If the answer to a claim was lost, its holder gets the claim again.
		ok = st.guest == "" && (st.phase == free || st.anew() || same && (st.phase == open || st.phase == running && st.untold)) && (s.fence == 0 || s.fence > st.fence)
		next = state{phase: running, attempt: s.attempt, fence: s.fence, holder: s.holder, print: s.print, begun: st.begun, since: s.began}
	case stepUse:
		next.since = s.began
		ok = mine && st.phase == running
	case stepTell:
		ok = mine
	case stepEnd:
		next.phase, next.outcome, next.begun, next.harmless = s.to, s.outcome, st.begun || s.begun, s.harmless
		ok = mine || st.attempt == s.attempt && st == next
	case stepLost:
		ok = !mine
	case stepEnded:
		ok = st.attempt == s.attempt && (st.phase == open || st.phase == final)
	case stepReplay:
		ok = same && st.phase == final && st.outcome == s.outcome
	case stepInFlight:
		ok = same && st.phase == running
	case stepHeld:
		ok = same && st.phase == held
	case stepConflict:
		ok = st.phase != free && st.print != 0 && st.print != s.print
	case stepPassed:
		next.phase = passed
		ok = st.phase == free || st.phase == open || st.phase == passed || st.phase == final && s.forgets
	case stepGuest:
		next.guest = s.attempt
		ok = st.guest == "" && (st.phase == free || st.phase == open || st.phase == final && st.harmless)
	case stepLeave:
		next.guest = ""
		ok = st.guest == s.attempt
	}
	return next, ok
}

// modelOf is the sequential meaning of a call under some rules.
func modelOf(rules Rules) porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{phase: free}} },
		Step: func(st, input, _ any) []any {
			s := input.(step)
			var next []any
			for _, before := range st.(state).alone(rules, &s) {
				if after, ok := before.after(&s); ok && !slices.Contains(next, any(after)) {
					next = append(next, after)
				}
				if s.pending && !slices.Contains(next, any(before)) {
					next = append(next, before)
				}
			}
			return next
		},
	}).ToModel()
}

// searchTimeout is how long the search for an order of one call may take.
const searchTimeout = 20 * time.Second

// orders: some order of all steps, each between its request and its answer, explains every
// answer (linearizability).
func (h *call) orders() {
	ops := h.steps()
	switch porcupine.CheckOperationsTimeout(modelOf(h.rules), ops, searchTimeout) {
	case porcupine.Illegal:
		h.judge(h.ordersWithoutEarlier(), RuleOrder, "%s", explain(modelOf(h.rules), ops))
	case porcupine.Unknown:
		h.report(RuleUnchecked, "%d steps, in %v", len(ops), searchTimeout)
	}
}

// ordersWithoutEarlier reports whether there is an order without the conflicts that an earlier program
// saw on a shared key. It takes what a later one leaves of an aborted call for another payload.
func (h *call) ordersWithoutEarlier() bool {
	less := *h
	earlier := map[string]bool{}
	for _, e := range h.events {
		earlier[e.ID] = earlier[e.ID] || h.isEarlier(e)
	}
	less.events = slices.DeleteFunc(slices.Clone(h.events), func(e Event) bool {
		return h.rules.Shared && e.Kind == Answer && e.Word == Conflict && earlier[e.ID]
	})
	return len(less.events) < len(h.events) &&
		porcupine.CheckOperationsTimeout(modelOf(less.rules), less.steps(), searchTimeout) == porcupine.Ok
}

// explain finds the first step that no order explains together with those before it. It leaves
// out the requests that weren't sent by then.
func explain(model porcupine.Model, ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(max(-1, min(1, a.Return-b.Return))) })
	for i := range ops {
		part := slices.Clone(ops[:i+1])
		for _, op := range ops[i+1:] {
			if op.Call < ops[i].Return {
				part = append(part, unanswered(op))
			}
		}
		if porcupine.CheckOperationsTimeout(model, part, searchTimeout/10) == porcupine.Illegal {
			return ops[i].Input.(step).String()
		}
	}
	return "all of it together"
}

// unanswered is a step before its answer has arrived.
func unanswered(op porcupine.Operation) porcupine.Operation {
	s := op.Input.(step)
	s.pending = true
	op.Input, op.Return = s, never
	return op
}

func (s step) String() string {
	text := s.id + " " + string(s.kind)
	if s.attempt != "" {
		text += " " + s.attempt
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s", text, s.outcome))
}

func attemptOf(fence int64) string { return strconv.FormatInt(fence, 10) }
