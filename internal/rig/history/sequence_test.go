package history

import (
	"slices"
	"testing"
)

// refuse refuses a number, and names another.
func (p *tape) refuse(key, word string, next int) {
	p.ask(Event{Key: key, Verb: Begin}, Event{Word: word, Next: next})
}

// shared is a request with a key that strangers use too. It arrives if there is an answer of the
// upstream for it.
func (p *tape) shared(caller, says, word, outcome string) {
	id := p.send(Event{Key: shared, Verb: Call, Caller: caller})
	if says != "" {
		p.add(Event{Kind: Arrival, Key: shared, ID: id, Caller: caller, Outcome: says})
	}
	p.answer(id, Event{Key: shared, Caller: caller, Word: word, Outcome: outcome})
}

// TestSoundSequences has numbers, and keys that strangers send too, as they may look.
func TestSoundSequences(t *testing.T) {
	areSound(t, map[string]func(p *tape){
		"numbers in any order, and their replays": func(p *tape) {
			p.refuse(third, Gap, 1)
			p.run(first, 7)
			p.refuse(third, Gap, 2)
			id := p.begin(second, "h", Execute, 8, "")
			p.begin(third, "g", InFlight, 0, "")
			p.effect(second, id)
			p.end(second, Complete, 8, "completed r", OK)
			p.run(third, 9)
			p.begin(first, "g", Replay, 0, "completed r")
			p.last(second, Replay, "completed r", "")
		},
		"a number was begun, and its answer lost; a later one that is held holds it up": func(p *tape) {
			p.run(first, 7)
			p.begin(second, "h", None, 0, "")
			p.begin(third, "g", Held, 0, "")
			p.last(third, Held, "", "abandoned")
		},
		"a number is aborted, and is begun again after a later one was refused": func(p *tape) {
			p.begin(first, "h", Execute, 7, "")
			p.end(first, Abort, 7, "", OK)
			p.refuse(second, Gap, 1)
			p.run(first, 8)
		},
		"a claim with another payload is given back, and somebody has seen it": func(p *tape) {
			id := p.send(Event{Key: first, Verb: Begin, Payload: 2})
			p.begin(first, "g", Conflict, 0, "")
			p.run(first, 7)
			p.answer(id, Event{Key: first, Word: Conflict})
			p.last(first, Replay, "completed r", "")
		},
		"an end was recorded when it was first sent": func(p *tape) {
			p.begin(first, "h", Execute, 7, "")
			p.end(first, Complete, 7, "completed r", None)
			p.run(second, 8)
			p.end(first, Complete, 7, "completed r", OK)
		},
		"strangers are refused, before and after the owner was": func(p *tape) {
			p.shared("s", "401 no", Answered, "401 no")
			p.shared("", "422 r", Answered, "422 r")
			p.shared("s", "403 no", Answered, "403 no")
			p.shared("s", "", Replay, "403 no")
			p.shared("", "", Replay, "422 r")
		},
		"strangers wait at a node that can't reach its store, and the owner finds no place in their line": func(p *tape) {
			p.send(Event{Key: shared, Verb: Call, Caller: "s", Node: 2})
			owner := p.send(Event{Key: shared, Verb: Call})
			p.add(Event{Kind: Arrival, Key: shared, ID: owner})
			p.add(Event{Kind: Effect, Key: shared, ID: owner, Outcome: "201 r"})
			p.answer(owner, Event{Key: shared, Word: Answered, Outcome: "201 r"})
			p.ask(Event{Key: shared, Verb: Call, Node: 2}, Event{Word: InFlight})
		},
		"a stranger leaves, and the owner who has waited behind it is told that the line was long": func(p *tape) {
			owner := p.send(Event{Key: shared, Verb: Call})
			p.add(Event{Kind: Arrival, Key: shared, ID: owner})
			p.add(Event{Kind: Effect, Key: shared, ID: owner, Outcome: "201 r"})
			p.answer(owner, Event{Key: shared, Word: Answered, Outcome: "201 r"})
			stranger := p.send(Event{Key: shared, Verb: Call, Caller: "s", Node: 2})
			again := p.send(Event{Key: shared, Verb: Call, Node: 2})
			p.answer(stranger, Event{Key: shared, Caller: "s", Word: None})
			p.answer(again, Event{Key: shared, Word: InFlight})
		},
		"a stranger is told nothing, and keeps the key": func(p *tape) {
			p.shared("s", "401 no", None, "")
			p.shared("", "", OtherCaller, "")
			p.shared("t", "", OtherCaller, "")
		},
	})
}

// TestPlantedInSequences plants one violation of each kind in them.
func TestPlantedInSequences(t *testing.T) {
	areFound(t, map[string]planted{
		"a number begins after a later one": {func(p *tape) {
			p.run(first, 7)
			p.run(third, 8)
			p.run(second, 9)
		}, []string{RuleGap, RulePassed}},
		"a number begins beside another": {func(p *tape) {
			p.begin(first, "h", Execute, 7, "")
			p.begin(second, "h", Execute, 8, "")
			p.end(second, Abort, 8, "", OK)
			p.end(first, Complete, 7, "completed r", OK)
		}, []string{RuleAtOnce, RuleGap}},
		"a number begins while another one's lease is extended": {func(p *tape) {
			p.begin(first, "h", Execute, 7, "")
			p.end(first, Complete, 7, "completed r", None)
			p.begin(second, "h", Execute, 8, "")
			p.ask(Event{Key: first, Verb: Renew, Fence: 7}, Event{Word: OK})
			p.ask(Event{Key: second, Verb: Renew, Fence: 8}, Event{Word: OK})
		}, []string{RuleAtOnce}},
		"a number is superseded and begins": {func(p *tape) {
			p.run(first, 7)
			p.send(Event{Key: third, Verb: Begin})
			p.refuse(second, Superseded, 3)
			p.run(second, 8)
		}, []string{RuleOrder}},
		"a number with an outcome is superseded": {func(p *tape) {
			p.run(first, 7)
			p.run(second, 8)
			p.refuse(first, Superseded, 2)
		}, []string{RuleLost, RuleOrder}},
		"a number with an outcome is held": {func(p *tape) {
			p.run(first, 7)
			p.begin(first, "", Held, 0, "")
		}, []string{RuleLost}},
		"a number is superseded by one that nobody has sent": {func(p *tape) {
			p.refuse(first, Superseded, 2)
		}, []string{RuleMadeUp}},
		"the number that comes next has an outcome": {func(p *tape) {
			p.run(first, 7)
			p.refuse(third, Gap, 1)
		}, []string{RuleGap}},
		"the number that comes next isn't": {func(p *tape) {
			p.refuse(third, Gap, 2)
		}, []string{RuleGap}},
		"a number is in flight for ever": {func(p *tape) {
			p.last(first, InFlight, "", "")
		}, []string{RuleForever}},
		"a stranger gets the owner's answer": {func(p *tape) {
			p.shared("", "422 r", Answered, "422 r")
			p.shared("s", "", Replay, "422 r")
		}, []string{RuleForeign}},
		"a stranger gets another answer": {func(p *tape) {
			p.shared("s", "", Replay, "401 of another")
		}, []string{RuleMadeUp}},
		"a stranger who was refused keeps the owner out": {func(p *tape) {
			p.shared("s", "401 no", Answered, "401 no")
			p.shared("", "", OtherCaller, "")
		}, []string{RuleOusted}},
		"a refusal is lost once strangers have the key": {func(p *tape) {
			p.shared("", "422 r", Answered, "422 r")
			p.shared("s", "401 no", None, "")
			p.shared("", "", OtherCaller, "")
		}, []string{RuleLost}},
		"an outcome is kept from its owner where no stranger waits": {func(p *tape) {
			p.ask(Event{Key: shared, Verb: Call, Caller: "s", Node: 2}, Event{Word: Unsent})
			p.send(Event{Key: shared, Verb: Call, Caller: "s", Node: 1})
			p.shared("", "422 r", Answered, "422 r")
			p.ask(Event{Key: shared, Verb: Call, Node: 2}, Event{Word: InFlight})
		}, []string{RuleLost}},
		"a refused call is sent again once strangers had the key": {func(p *tape) {
			p.shared("", "422 r", Answered, "422 r")
			p.shared("s", "401 no", Answered, "401 no")
			p.shared("", "422 r", Answered, "422 r")
		}, []string{RuleOrder}},
		"a stranger's call runs beside the owner's": {func(p *tape) {
			owner := p.send(Event{Key: shared, Verb: Call})
			p.add(Event{Kind: Arrival, Key: shared, ID: owner})
			p.shared("s", "401 no", Answered, "401 no")
			p.add(Event{Kind: Effect, Key: shared, ID: owner, Outcome: "201 r"})
			p.answer(owner, Event{Key: shared, Word: Answered, Outcome: "201 r"})
		}, []string{RuleOrder}},
		"a stranger has the key after the owner's answer": {func(p *tape) {
			owner := p.send(Event{Key: shared, Verb: Call})
			p.add(Event{Kind: Arrival, Key: shared, ID: owner})
			p.add(Event{Kind: Effect, Key: shared, ID: owner, Outcome: "201 r"})
			p.answer(owner, Event{Key: shared, Word: Answered, Outcome: "201 r"})
			p.shared("s", "401 no", Answered, "401 no")
		}, []string{RuleOrder}},
	})
}

// TestEarlierPrograms has what an earlier program does to numbers. It is a violation all the same
// where only later programs had them, or had the numbers above one whose outcome is gone.
func TestEarlierPrograms(t *testing.T) {
	tests := map[string]struct {
		play func(p *tape, later func())
		want string
	}{
		"an outcome is forgotten": {func(p *tape, later func()) {
			p.run(first, 7)
			later()
			p.run(second, 8)
			p.refuse(first, Superseded, 2)
		}, RuleLost},
		"an outcome is forgotten to the end": {func(p *tape, later func()) {
			p.run(first, 7)
			later()
			p.run(second, 8)
			p.ask(Event{Key: first, Verb: Begin, Final: true}, Event{Word: Superseded, Next: 2})
		}, RuleLost},
		"a later program claims a number for a moment": {func(p *tape, later func()) {
			later()
			p.run(first, 7)
			p.begin(first, "g", InFlight, 0, "")
		}, RuleLost},
		"an aborted call of an owner is taken for another payload": {func(p *tape, later func()) {
			p.shared("", "", Unsent, "")
			later()
			p.shared("", "", Conflict, "")
		}, RuleOrder},
		"an end is denied": {func(p *tape, later func()) {
			later()
			p.run(first, 7)
			p.end(first, Complete, 7, "completed r", Lost)
			p.last(first, Replay, "completed r", "")
		}, RuleDenied},
		"an attempt is forgotten": {func(p *tape, later func()) {
			later()
			p.run(first, 7)
			p.end(first, Complete, 7, "completed r", NotFound)
		}, RuleForgotten},
		"an attempt was ended by nobody": {func(p *tape, later func()) {
			later()
			p.begin(first, "h", Execute, 7, "")
			p.end(first, Complete, 7, "completed r", Ended)
		}, RuleEnded},
		"a sequence begins in its middle": {func(p *tape, later func()) {
			p.run(first, 7)
			later()
			p.run(third, 8)
		}, RuleGap},
		"and what comes next is in its middle": {func(p *tape, later func()) {
			later()
			p.begin(second, "h", Execute, 8, "")
			p.end(second, Abort, 8, "", OK)
			p.refuse(third, Gap, 2)
		}, RuleGap},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, earlier := range []bool{true, false} {
				p := newTape()
				test.play(p, func() {
					if !earlier {
						p.log.Earlier(1, p.now)
					}
				})
				if earlier {
					p.log.Earlier(1, p.now)
				}
				found := p.log.Check()
				strict := slices.DeleteFunc(slices.Clone(found), func(v Violation) bool { return v.Earlier })
				if !slices.Contains(rulesOf(found), test.want) || (len(strict) == 0) != earlier {
					t.Errorf("by an earlier program %v: found %+v", earlier, found)
				}
			}
		})
	}
	t.Run("a later program begins a number without the one below it, and an earlier one was asked about a later number", func(t *testing.T) {
		p := newTape()
		p.refuse(third, Gap, 1)
		p.log.Earlier(1, p.now)
		p.run(second, 8)
		if found := p.log.Check(); len(found) == 0 || slices.ContainsFunc(found, func(v Violation) bool { return v.Earlier }) {
			t.Errorf("%+v", found)
		}
	})
	t.Run("nothing else is judged mildly", func(t *testing.T) {
		p := newTape()
		p.run(first, 7)
		p.effect(first, "c-1")
		p.run(second, 8)
		p.begin(first, "", Held, 0, "")
		p.run(first, 9)
		p.log.Earlier(1, p.now+1)
		for _, v := range p.log.Check() {
			if v.Earlier {
				t.Errorf("%+v", v)
			}
		}
	})
}
