package history

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// NumberKey is the key of a number of a sequence in a log. Operation, a slash and the sequence's
// own key come before it.
func NumberKey(sequence string, number int) string { return sequence + "#" + strconv.Itoa(number) }

// CutNumber is the inverse of NumberKey. The number is zero where there is none.
func CutNumber(key string) (sequence string, number int) {
	sequence, text, _ := strings.Cut(key, "#")
	number, _ = strconv.Atoi(text)
	return sequence, number
}

// Sequences are the keys of the log by sequence, each in the order of its numbers.
func (l *Log) Sequences() [][]string {
	groups := map[string][]string{}
	var order []string
	for _, key := range l.Keys() {
		sequence, _ := CutNumber(key)
		if groups[sequence] == nil {
			order = append(order, sequence)
		}
		groups[sequence] = append(groups[sequence], key)
	}
	all := make([][]string, len(order))
	for i, sequence := range order {
		slices.SortFunc(groups[sequence], func(a, b string) int {
			_, n := CutNumber(a)
			_, m := CutNumber(b)
			return n - m
		})
		all[i] = groups[sequence]
	}
	return all
}

// sequenceOf are all numbers of a key's sequence, or the key alone.
func (l *Log) sequenceOf(key string) []string {
	if !l.RulesOf(key).Numbered {
		return []string{key}
	}
	sequence, _ := CutNumber(key)
	return slices.DeleteFunc(l.Keys(), func(k string) bool {
		s, _ := CutNumber(k)
		return s != sequence
	})
}

// Earlier says that a node ran an earlier program for all requests that were sent before a
// time. It kept the numbers of a sequence in one record, so the rules are milder on its
// decisions, see [Violation.Earlier]: it may have
//
//   - forgotten the outcome of a number when a later one began, and superseded it,
//   - denied an end that was sent again, for the same reason,
//   - begun a sequence in its middle, although it has no gaps.
//
// And on a shared key it mistakes the traces of a call that a later program has aborted for
// another payload.
func (l *Log) Earlier(node int, until int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.earlier[node] = until
}

// lastEarlier is the highest number of each sequence that was sent to an earlier program. The
// sequences to which none was aren't there.
func (l *Log) lastEarlier() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := map[string]int{}
	for key, events := range l.keys {
		if sequence, n := CutNumber(key); n > last[sequence] && slices.ContainsFunc(events, l.isEarlier) {
			last[sequence] = n
		}
	}
	return last
}

// isEarlier reports whether an event is a request to an earlier program. No node is replaced while
// the log is judged.
func (l *Log) isEarlier(e Event) bool { return e.Kind == Request && e.At < l.earlier[e.Node] }

// number is what the clients know of one number.
type number struct {
	*call
	grants []during
	sure   []during // its attempts had the right to execute all that time
	// happened is when something had happened that isn't undone, ended when it may have had an
	// outcome, and told when somebody knew its outcome. None of them: never.
	happened, ended, told int64
}

// during is a time with the request that it is of.
type during struct {
	from, to int64
	id       string
}

// checkSequences checks the numbers of each sequence against each other.
func (l *Log) checkSequences(earlier map[string]int) []Violation {
	var found []Violation
	for _, keys := range l.Sequences() {
		rules := l.RulesOf(keys[0])
		if !rules.Numbered {
			continue
		}
		numbers := map[int]*number{}
		for _, key := range keys {
			n := newNumber(l.callOf(key, earlier))
			numbers[n.n] = n
		}
		for _, key := range keys {
			_, n := CutNumber(key)
			numbers[n].begins(numbers)
			numbers[n].refusals(numbers)
			found = append(found, numbers[n].found...)
		}
	}
	return found
}

func newNumber(h *call) *number {
	n := &number{call: h, happened: math.MaxInt64, ended: math.MaxInt64, told: math.MaxInt64}
	requests, arrivals := h.requests(), map[string]Event{}
	attempts := map[int64]*during{} // of the execution API, by the fence
	type end struct {
		fence int64
		verb  string
	}
	ends := map[end]int64{} // when they were first sent
	for _, e := range h.events {
		r := requests[e.ID]
		if e.Kind == Answer && e.Outcome != "" {
			n.told = min(n.told, e.At)
		}
		switch {
		case e.Kind == Effect:
			n.happened = min(n.happened, e.At)
			if a, ok := arrivals[e.ID]; ok && !h.rules.Repeats {
				n.sure = append(n.sure, during{a.At, e.At, e.ID})
			}
			n.mayEnd(e, h.rules.Routed)
		case e.Kind == Arrival:
			arrivals[e.ID] = e
			n.grants = append(n.grants, during{r.At, e.At, e.ID})
			n.mayEnd(e, e.Outcome != "" || e.Word == Failed)
		case e.Kind == Request:
			n.mayEnd(e, leadsTo[e.Verb] == final)
			if name := (end{e.Fence, e.Verb}); isEnd(e.Verb) && ends[name] == 0 {
				ends[name] = e.At
			}
		case e.Kind == Answer && e.Verb == Begin && e.Word == Execute:
			n.grants = append(n.grants, during{r.At, e.At, e.ID})
			if attempts[e.Fence] == nil {
				attempts[e.Fence] = &during{e.At, e.At, e.ID}
			}
		case e.Kind == Answer && e.Word == OK && attempts[r.Fence] != nil:
			at := r.At
			if isEnd(r.Verb) { // it may have ended when that was first sent
				at = ends[end{r.Fence, r.Verb}]
			}
			attempts[r.Fence].to = max(attempts[r.Fence].to, at)
		}
		if e.Kind == Answer && (e.Verb == Fail && e.Word == OK || e.Word == Failed) {
			n.happened = min(n.happened, e.At)
		}
	}
	for _, a := range attempts {
		n.sure = append(n.sure, *a)
	}
	return n
}

// mayEnd notes that the number may have an outcome from then on.
func (n *number) mayEnd(e Event, may bool) {
	if may {
		n.ended = min(n.ended, e.At)
	}
}

// begins: one number runs at a time, none begins after a later one that may have had an effect,
// and without gaps none begins before the one below it has an outcome.
func (n *number) begins(all map[int]*number) {
	for _, g := range n.grants {
		if below := all[n.n-1]; n.rules.Gapless && n.n > 1 && (below == nil || below.ended >= g.to) {
			n.judge(slices.ContainsFunc(n.events, n.isEarlier), RuleGap, "%s began, and number %d had no outcome", g.id, n.n-1)
		}
		for _, other := range all {
			if other.n > n.n && g.from > other.happened {
				n.report(RulePassed, "%s began after number %d had an effect", g.id, other.n)
			}
			for _, s := range other.sure {
				if other != n && s.from < g.from && g.to < s.to {
					n.report(RuleAtOnce, "%s began while %s had the right to execute number %d", g.id, s.id, other.n)
				}
			}
		}
	}
	for _, a := range n.sure {
		for _, other := range all {
			for _, b := range other.sure {
				if other != n && b.from <= a.from && a.from < min(a.to, b.to) {
					n.report(RuleAtOnce, "%s and %s of number %d had the right to execute at the same time", a.id, b.id, other.n)
				}
			}
		}
	}
}

// refusals: the refusal of a number names one that comes before it and has no outcome, or one
// that comes after it and was sent.
func (n *number) refusals(all map[int]*number) {
	requests := n.requests()
	for _, e := range n.of(Answer) {
		named := all[e.Next]
		switch {
		case e.Word == Superseded && (e.Next <= n.n || named == nil || named.events[0].At > e.At):
			n.report(RuleMadeUp, "%s was told that number %d has begun", e.ID, e.Next)
		case e.Word != Gap:
		case e.Next < 1 || e.Next >= n.n:
			n.report(RuleGap, "%s was told that number %d comes next", e.ID, e.Next)
		case named != nil && named.told < requests[e.ID].At:
			n.report(RuleGap, "%s was told that number %d comes next, which has an outcome", e.ID, e.Next)
		case e.Next > 1 && (all[e.Next-1] == nil || all[e.Next-1].ended >= e.At):
			n.judge(n.mayBeEarlier(e.Next), RuleGap, "%s was told that number %d comes next, and the one below it has no outcome", e.ID, e.Next)
		}
	}
}
