package history

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// phase is how a call stands, as its clients can know it.
type phase string

const (
	free    phase = "free"    // no record
	running phase = "running" // somebody has the right to execute
	held    phase = "held"
	open    phase = "open"  // ended so that the next delivery runs
	final   phase = "final" // ended, and every delivery gets the outcome
)

// state is that of one call.
type state struct {
	phase phase
	// untold: nobody knows that they have the right to execute, so what has it may give
	// it back at any time.
	untold  bool
	attempt string // of the newest right that somebody was told of
	fence   int64
	holder  string
	print   int
	outcome string
}

// alone is what may happen without any client: what was abandoned is held, or open
// again where the operation allows that, a claim that nobody was told of is given
// back, and one that was thought lost is there after all.
func (st state) alone(rules Rules, ghosts [maxPayload + 1]bool) []state {
	all := []state{st}
	add := func(p phase, untold bool, print int) {
		next := st
		next.phase, next.untold, next.print = p, untold, print
		if !slices.Contains(all, next) {
			all = append(all, next)
		}
	}
	again := rules.Repeats || rules.Reopens
	if st.phase == running {
		add(held, st.untold, st.print)
	}
	if st.untold || st.phase == running && again {
		add(open, false, st.print)
	}
	for print, may := range ghosts {
		if may && (st.phase == free || print == st.print && (st.phase == open || st.untold || st.phase == running && again)) {
			add(running, true, print)
			add(held, true, print)
			add(open, false, print)
		}
	}
	return all
}

// after is how a call stands after a step. It is not ok if the step could not happen.
func (st state) after(s *step) (next state, ok bool) {
	same := st.phase != free && st.print == s.print
	mine := !st.untold && st.attempt == s.attempt && (st.phase == running || st.phase == held)
	next = st
	switch s.kind {
	case stepGrant:
		again := mine && st.phase == running && st.holder == s.holder && s.holder != ""
		// The claim of a beginning whose answer was lost is granted to who asks again.
		fresh := (st.phase == free || same && (st.phase == open || st.phase == running && st.untold)) && (s.fence == 0 || s.fence > st.fence)
		return state{phase: running, attempt: s.attempt, fence: s.fence, holder: s.holder, print: s.print}, again || fresh
	case stepUse:
		ok = mine && st.phase == running
	case stepTell:
		ok = mine
	case stepEnd:
		next.phase, next.outcome = s.to, s.outcome
		ok = mine || st.attempt == s.attempt && st == next
	case stepReplay:
		ok = same && st.phase == final && st.outcome == s.outcome
	case stepInFlight:
		ok = same && st.phase == running
	case stepHeld:
		ok = same && st.phase == held
	case stepConflict:
		ok = st.phase != free && st.print != s.print
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
			for _, before := range st.(state).alone(rules, s.ghosts) {
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

// patience is how long the search for an order of one call may take.
const patience = 20 * time.Second

// orders: there is an order of all steps, each between its request and its answer,
// that explains every answer.
func (h *call) orders() {
	ops := h.steps()
	switch porcupine.CheckOperationsTimeout(modelOf(h.rules), ops, patience) {
	case porcupine.Illegal:
		h.report(RuleOrder, "%s", explain(modelOf(h.rules), ops))
	case porcupine.Unknown:
		h.report(RuleUnchecked, "%d steps, in %v", len(ops), patience)
	}
}

// explain finds the first step that no order explains with those before it, by
// leaving out what had not been asked by then.
func explain(model porcupine.Model, ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(max(-1, min(1, a.Return-b.Return))) })
	for i := range ops {
		part := slices.Clone(ops[:i+1])
		for _, op := range ops[i+1:] {
			if op.Call < ops[i].Return {
				part = append(part, unanswered(op))
			}
		}
		if porcupine.CheckOperationsTimeout(model, part, patience/10) == porcupine.Illegal {
			return ops[i].Input.(step).String()
		}
	}
	return "all of it together"
}

// unanswered is a step as it stands before its answer has come.
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
