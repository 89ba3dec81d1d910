package history

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Violation is a rule that was broken.
type Violation struct {
	// Rule names it, the same for all violations of a kind.
	Rule string `json:"rule"`
	// Key is the call, or empty if the fault is about more than one.
	Key  string `json:"key,omitempty"`
	Text string `json:"text"`
	// Earlier: an earlier program may have done it, and is known for it. See [Log.Earlier].
	Earlier bool `json:"earlier,omitempty"`
}

// The rules.
const (
	RuleTwice     = "effect twice"
	RuleAnswer    = "two answers"
	RuleLost      = "answer lost"
	RuleMadeUp    = "answer made up"
	RuleFence     = "fence does not rise"
	RuleForever   = "in flight for ever"
	RuleReason    = "held without a reason"
	RuleUnsettled = "never settled"
	RuleSilent    = "no answer to the end"
	RuleDenied    = "end denied"
	RuleEnded     = "ended by nobody"
	RuleForgotten = "right forgotten"
	RuleSentTwice = "sent twice"
	RuleSent      = "sent after all"
	RuleInternal  = "internal error"
	RuleOrder     = "no order explains it"
	RuleUnchecked = "not checked"

	// Rules of sequences.
	RuleAtOnce = "two numbers at once"
	RulePassed = "begun after a later number"
	RuleGap    = "not the number that comes next"
	// Rules of keys that strangers send, too.
	RuleForeign = "told to a stranger"
	RuleOusted  = "owner kept out"
)

// Check checks the whole log by the rules. Call it when everything has ended.
func (l *Log) Check() []Violation {
	var found []Violation
	earlier := l.lastEarlier()
	for _, key := range l.Keys() {
		found = append(found, l.callOf(key, earlier).check()...)
	}
	return append(found, l.checkSequences(earlier)...)
}

// callOf is the history of a key.
func (l *Log) callOf(key string, earlier map[string]int) *call {
	sequence, n := CutNumber(key)
	return &call{key: key, n: n, earlier: earlier[sequence], rules: l.RulesOf(key), lease: l.lease, events: l.Of(key), isEarlier: l.isEarlier}
}

// check checks one call by the rules.
func (h *call) check() []Violation {
	h.once()
	h.oneAnswer()
	h.fences()
	h.ends()
	h.upstream()
	h.final()
	h.kept()
	h.ousted()
	h.orders()
	return h.found
}

// call is the history of one key.
type call struct {
	key    string
	n      int // its number in a sequence
	rules  Rules
	lease  time.Duration
	events []Event
	found  []Violation
	// earlier is the highest number of its sequence that an earlier program may have decided.
	earlier int
	// isEarlier reports whether an event is a request to an earlier program.
	isEarlier func(Event) bool
}

func (h *call) report(rule, format string, args ...any) { h.judge(false, rule, format, args...) }

// judge reports what an earlier program may have done, or nobody.
func (h *call) judge(earlier bool, rule, format string, args ...any) {
	h.found = append(h.found, Violation{rule, h.key, fmt.Sprintf(format, args...), earlier})
}

// mayBeEarlier reports whether an earlier program may have decided about a number of the sequence,
// or about a later one.
func (h *call) mayBeEarlier(number int) bool { return 0 < number && number <= h.earlier }

// forgotten reports whether a number was superseded by an earlier program, which forgets its
// outcome, or is in flight for a moment: the present program claims it under its own record, finds
// that an earlier program has begun it in the place of the sequence, and gives its claim back.
func (h *call) forgotten(word string) bool {
	return word == Superseded && h.mayBeEarlier(h.n+1) || word == InFlight && h.mayBeEarlier(h.n)
}

// of returns the events of a kind.
func (h *call) of(kind Kind) []Event {
	return slices.DeleteFunc(slices.Clone(h.events), func(e Event) bool { return e.Kind != kind })
}

// requests returns the requests by their ids.
func (h *call) requests() map[string]Event {
	all := map[string]Event{}
	for _, e := range h.of(Request) {
		all[e.ID] = e
	}
	return all
}

// once: a call has one effect, unless its operation says that it may be repeated.
func (h *call) once() {
	effects := h.of(Effect)
	if h.rules.Repeats || len(effects) < 2 {
		return
	}
	who := make([]string, len(effects))
	for i, e := range effects {
		who[i] = e.ID
	}
	h.report(RuleTwice, "%d effects, by %s", len(effects), strings.Join(who, ", "))
}

// oneAnswer: all outcomes that anybody gets are equal, and come from a holder or the upstream.
// Strangers only get what the upstream said to them.
func (h *call) oneAnswer() {
	type said struct{ outcome, to string }
	given := map[said]bool{}
	for _, e := range h.events {
		if e.Outcome != "" && (e.Kind == Request || e.Kind == Arrival || e.Kind == Effect) {
			given[said{e.Outcome, e.Caller}] = true
		}
	}
	first := ""
	for _, e := range h.of(Answer) {
		switch {
		case e.Word == Internal:
			h.report(RuleInternal, "%s was answered %d: %s", e.ID, e.Status, e.Text)
		case e.Outcome == "":
			continue
		case e.Caller != "" && given[said{e.Outcome, ""}]:
			h.report(RuleForeign, "%s was told %s", e.ID, e.Outcome)
			return
		case !given[said{e.Outcome, e.Caller}]:
			h.report(RuleMadeUp, "%s was told %s, which nobody has said", e.ID, e.Outcome)
			return
		case e.Caller != "": // whoever is refused may be refused again, in another way
		case first == "":
			first = e.Outcome
		case first != e.Outcome:
			h.report(RuleAnswer, "answered with %s, and %s with %s", first, e.ID, e.Outcome)
			return
		}
	}
}

// grant is an attempt that its holder has heard of.
type grant struct {
	asked, told int64
	fence       int64
	holder, id  string
}

// fences: every later attempt has a higher fence (fencing token). A holder may get the same
// attempt twice.
func (h *call) fences() {
	requests := h.requests()
	var grants []grant
	for _, e := range h.of(Answer) {
		if r := requests[e.ID]; e.Verb == Begin && e.Word == Execute {
			grants = append(grants, grant{r.At, e.At, e.Fence, r.Holder, e.ID})
		}
	}
	for i, a := range grants {
		for _, b := range grants[i+1:] {
			if a.told > b.told {
				a, b = b, a
			}
			switch again := a.fence == b.fence && a.holder == b.holder && a.holder != ""; {
			case again:
			case a.fence == b.fence:
				h.report(RuleFence, "%s and %s were both given fence %d", a.id, b.id, a.fence)
			case a.told < b.asked && a.fence > b.fence:
				h.report(RuleFence, "%s was given fence %d, and then %s %d", a.id, a.fence, b.id, b.fence)
			}
		}
	}
}

// ends: a holder never hears that its recorded end wasn't recorded, nor that its attempt didn't
// exist; and only the holder ends an attempt.
func (h *call) ends() {
	outcome, denied := "", false
	said := map[int64]map[string]bool{} // the outcomes that holders gave their attempts
	for _, e := range h.events {
		if e.Kind == Answer && e.Outcome != "" {
			outcome = e.Outcome
		}
		if e.Kind == Request && isEnd(e.Verb) {
			if said[e.Fence] == nil {
				said[e.Fence] = map[string]bool{}
			}
			said[e.Fence][e.Verb] = true
		}
	}
	requests := h.requests()
	for _, e := range h.of(Answer) {
		r := requests[e.ID]
		if e.Word == NotFound {
			h.judge(h.mayBeEarlier(h.n), RuleForgotten, "%s was told that there is no execution with fence %d", e.ID, r.Fence)
			return
		}
		if !isEnd(e.Verb) || e.Word != Lost && e.Word != Ended {
			continue
		}
		switch {
		case r.Outcome != "" && r.Outcome == outcome:
			if denied {
				continue
			}
			denied = true
			h.judge(h.mayBeEarlier(h.n), RuleDenied, "%s was told %s, and yet its end is the outcome", e.ID, e.Word)
		case e.Word == Ended && len(said[r.Fence]) == 1 && !h.rules.Repeats && !h.rules.Reopens:
			h.judge(h.mayBeEarlier(h.n), RuleEnded, "%s was told that its attempt has ended in another way, and nobody has ended it", e.ID)
		}
	}
}

func isEnd(verb string) bool {
	return slices.Contains([]string{Complete, Reject, Fail, Abort, Hold}, verb)
}

// upstream: a call is forwarded once, and not at all if the answer says that it wasn't sent.
func (h *call) upstream() {
	arrived := map[string]int{}
	for _, e := range h.of(Arrival) {
		if arrived[e.ID]++; arrived[e.ID] == 2 {
			h.report(RuleSentTwice, "%s has arrived twice", e.ID)
		}
	}
	for _, e := range h.of(Answer) {
		if e.Word == Unsent && arrived[e.ID] > 0 {
			h.report(RuleSent, "%s was told that nothing was sent, and it has arrived", e.ID)
		}
	}
}

// final: when the faults have ended, every node gives the same last answer, and every
// outcome that a client got is still there.
func (h *call) final() {
	promised := ""
	for _, e := range h.of(Answer) {
		if e.Outcome != "" && e.Caller == "" && !e.Final && promised == "" {
			promised = e.Outcome
		}
	}
	asked, last, reasons := map[int]Event{}, map[int]Event{}, map[int]string{}
	for _, e := range h.events {
		switch {
		case e.Kind == Reason:
			reasons[e.Node] = e.Text
		case !e.Final || e.Verb != Begin && e.Verb != Call:
		case e.Kind == Request:
			asked[e.Node] = e
		case e.Kind == Answer:
			last[e.Node] = e
		}
	}
	for node := range asked {
		e, ok := last[node]
		switch {
		case !ok || e.Word == None || e.Status == 503:
			h.report(RuleSilent, "node %d was asked to the end and said: %s %d %s", node, e.Word, e.Status, e.Text)
		case e.Word == InFlight:
			h.report(RuleForever, "node %d says so although nobody works on it", node)
		case e.Word == Gone:
			h.report(RuleLost, "node %d: %s", node, e.Text)
		case promised != "" && e.Outcome == "":
			h.judge(h.forgotten(e.Word), RuleLost, "%s was told, and node %d says: %s %d %s", promised, node, e.Word, e.Status, e.Text)
		case e.Word == Held && h.rules.Asked && slices.ContainsFunc(h.of(Effect), func(ef Event) bool { return ef.At < e.At }):
			h.report(RuleUnsettled, "node %d holds it although whoever is asked knows of its effect", node)
		case e.Word == Held && reasons[node] == "":
			h.report(RuleReason, "node %d", node)
		}
	}
}

// kept: after somebody got an outcome, everybody who asks gets it, whatever happens to other
// numbers, and whoever else has used the key since.
func (h *call) kept() {
	if !h.rules.Numbered && !h.rules.Shared {
		return // the model has it
	}
	requests, told := h.requests(), int64(0)
	for _, e := range h.of(Answer) {
		switch {
		case e.Caller != "":
		case e.Outcome != "":
			if told == 0 {
				told = e.At
			}
		case told == 0 || e.Final || requests[e.ID].At < told:
		case e.Word == InFlight && h.strangerAt(e.Node, requests[e.ID].At, e.At): // the line there was long
		case slices.Contains([]string{InFlight, Held, Superseded, Gap, OtherCaller}, e.Word):
			h.judge(h.forgotten(e.Word), RuleLost, "%s was told %s after the outcome was", e.ID, e.Word)
			return
		}
	}
}

// strangerAt reports whether a node had a stranger's request while it had another one, from when that
// came until it was answered.
func (h *call) strangerAt(node int, came, answered int64) bool {
	there := map[string]bool{}
	for _, e := range h.events {
		switch {
		case e.At >= answered:
			return len(there) > 0
		case e.Kind == Request && e.Node == node && e.Caller != "":
			there[e.ID] = true
		case e.Kind == Answer && e.At < came:
			delete(there, e.ID)
		}
	}
	return len(there) > 0
}

// ousted: the owner of a key isn't kept out by strangers whom the upstream has refused, or who
// never got that far.
func (h *call) ousted() {
	requests := h.requests()
	answers := h.of(Answer)
	unclear := func(since, until int64) bool {
		clear := map[string]bool{} // the requests of strangers that keep nothing
		for _, e := range answers {
			if e.At < since && slices.Contains([]string{Answered, Replay, InFlight, OtherCaller, Unsent}, e.Word) {
				clear[e.ID] = true
			}
		}
		for id, r := range requests {
			if r.Caller != "" && r.At < until && !clear[id] {
				return true
			}
		}
		return false
	}
	for _, e := range answers {
		if e.Caller == "" && e.Word == OtherCaller && !unclear(requests[e.ID].At, e.At) {
			h.report(RuleOusted, "%s was told that the call is another's", e.ID)
			return
		}
	}
}
