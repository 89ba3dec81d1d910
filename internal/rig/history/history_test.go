package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// tape writes histories for tests: every event is a millisecond after the one before.
type tape struct {
	log *Log
	now int64
	n   int
}

const (
	once   = "once/k"
	steps  = "steps/k"
	again  = "again/k"
	routed = "routed/k"
	asked  = "asked/k"
	timed  = "timed/k" // its lease lasts tapeLease
	retry  = "retry/k" // so does its, and it may be repeated
	first  = "numbers/s#1"
	second = "numbers/s#2"
	third  = "numbers/s#3"
	shared = "shared/k"
)

// tapeLease is the lease of the timed operations.
const tapeLease = 20 * time.Millisecond

func newTape() *tape {
	return &tape{log: NewLog(map[string]Rules{
		"once": {}, "steps": {Reopens: true}, "again": {Repeats: true}, "routed": {Routed: true}, "asked": {Routed: true, Asked: true},
		"timed": {Timed: true}, "retry": {Timed: true, Repeats: true, Retries: true},
		"numbers": {Numbered: true, Gapless: true}, "shared": {Routed: true, Shared: true},
	}, tapeLease)}
}

func (p *tape) add(e Event) {
	p.now += int64(time.Millisecond)
	e.At = p.now
	p.log.Add(e)
}

// send begins a request and returns its id.
func (p *tape) send(e Event) string {
	p.n++
	e.Kind, e.ID, e.Node = Request, fmt.Sprintf("c-%d", p.n), max(1, e.Node)
	if e.Payload == 0 {
		e.Payload = 1
	}
	p.add(e)
	return e.ID
}

func (p *tape) answer(id string, e Event) {
	for _, r := range p.log.Of(e.Key) {
		if r.ID == id && r.Kind == Request {
			e.Verb, e.Node, e.Final = r.Verb, r.Node, r.Final
		}
	}
	e.Kind, e.ID = Answer, id
	p.add(e)
}

// ask is a request with its answer.
func (p *tape) ask(r, a Event) string {
	id := p.send(r)
	a.Key = r.Key
	p.answer(id, a)
	return id
}

func (p *tape) begin(key, holder, word string, fence int64, outcome string) string {
	return p.ask(Event{Key: key, Verb: Begin, Holder: holder}, Event{Word: word, Fence: fence, Outcome: outcome})
}

func (p *tape) end(key, verb string, fence int64, outcome, word string) {
	a := Event{Word: word}
	if word == OK {
		a.Outcome = outcome
	}
	p.ask(Event{Key: key, Verb: verb, Fence: fence, Outcome: outcome}, a)
}

func (p *tape) effect(key, id string) { p.add(Event{Kind: Effect, Key: key, ID: id}) }

func (p *tape) last(key, word, outcome, reason string) {
	p.ask(Event{Key: key, Verb: Begin, Final: true}, Event{Word: word, Outcome: outcome})
	if reason != "" {
		p.add(Event{Kind: Reason, Key: key, Node: 1, Text: reason})
	}
}

// run is a whole call without a fault, which gives r.
func (p *tape) run(key string, fence int64) {
	id := p.begin(key, "h", Execute, fence, "")
	p.effect(key, id)
	p.end(key, Complete, fence, "completed r", OK)
}

// call is a request through the proxy that arrives, if it arrives, and has an
// effect, if it says which.
func (p *tape) call(word string, arrives bool, outcome string) string {
	id := p.send(Event{Key: routed, Verb: Call})
	if arrives {
		e := Event{Kind: Arrival, Key: routed, ID: id}
		if word == Failed {
			e.Word = Failed
		}
		p.add(e)
	}
	if outcome != "" && arrives {
		p.add(Event{Kind: Effect, Key: routed, ID: id, Outcome: outcome})
	}
	a := Event{Key: routed, Word: word}
	if word == Answered || word == Replay {
		a.Outcome = outcome
	}
	p.answer(id, a)
	return id
}

func rulesOf(found []Violation) []string {
	var rules []string
	for _, v := range found {
		rules = append(rules, v.Rule)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// TestSoundHistories are what may happen, however odd it looks.
func TestSoundHistories(t *testing.T) {
	areSound(t, map[string]func(p *tape){
		"a call, its duplicates and its replays": func(p *tape) {
			p.begin(once, "h", Execute, 7, "")
			p.begin(once, "g", InFlight, 0, "")
			p.effect(once, "c-1")
			p.end(once, Complete, 7, "completed r", OK)
			p.begin(once, "g", Replay, 0, "completed r")
			p.last(once, Replay, "completed r", "")
		},
		"the answer to a beginning is lost, and its holder gets it again": func(p *tape) {
			p.begin(once, "h", None, 0, "")
			p.begin(once, "h", Execute, 7, "")
			p.begin(once, "h", Execute, 7, "")
			p.end(once, Complete, 7, "completed r", OK)
		},
		"the answer to a beginning is lost, and the call is held": func(p *tape) {
			p.begin(once, "", None, 0, "")
			p.begin(once, "", InFlight, 0, "")
			p.begin(once, "", Held, 0, "")
			p.last(once, Held, "", "abandoned")
		},
		"a claim outlives its lease before its node hears of it": func(p *tape) {
			late := p.send(Event{Key: again, Verb: Begin, Holder: "h"})
			p.begin(again, "g", InFlight, 0, "")
			id := p.begin(again, "g", Execute, 7, "")
			p.effect(again, id)
			p.end(again, Complete, 7, "completed r", OK)
			p.now += int64(tapeLease)
			p.answer(late, Event{Key: again, Word: Replay, Outcome: "completed r"})
		},
		"a claim outlives its lease before its node hears of it, is held, and its node begins anew": func(p *tape) {
			late := p.send(Event{Key: once, Verb: Begin, Holder: "h"})
			p.begin(once, "g", InFlight, 0, "")
			p.begin(once, "g", Held, 0, "")
			p.now += int64(tapeLease)
			p.answer(late, Event{Key: once, Word: Execute, Fence: 8})
			p.ask(Event{Key: once, Verb: Renew, Fence: 8}, Event{Word: OK})
			p.end(once, Complete, 8, "completed r", OK)
		},
		"a claim is taken back, and another is given": func(p *tape) {
			p.begin(once, "h", "store_unavailable", 0, "")
			p.begin(once, "g", Execute, 9, "")
		},
		"a claim that was thought lost arrives between two": func(p *tape) {
			p.begin(once, "h", Execute, 7, "")
			p.begin(once, "g", None, 0, "")
			p.end(once, Abort, 7, "", OK)
			p.begin(once, "f", InFlight, 0, "")
			p.begin(once, "f", Held, 0, "")
		},
		"an end is sent again after its answer was lost": func(p *tape) {
			p.begin(once, "h", Execute, 7, "")
			p.end(once, Complete, 7, "completed r", None)
			p.begin(once, "g", Replay, 0, "completed r")
			p.end(once, Complete, 7, "completed r", OK)
		},
		"a holder that was silent is too late, and the call is held": func(p *tape) {
			p.begin(once, "h", Execute, 7, "")
			p.effect(once, "c-1")
			p.begin(once, "g", Held, 0, "")
			p.end(once, Complete, 7, "completed r", Lost)
			p.last(once, Held, "", "abandoned")
		},
		"a holder ends what was held": func(p *tape) {
			p.begin(once, "h", Execute, 7, "")
			p.begin(once, "g", Held, 0, "")
			p.end(once, Complete, 7, "completed r", OK)
			p.last(once, Replay, "completed r", "")
		},
		"an aborted attempt is followed by another": func(p *tape) {
			p.begin(once, "h", Execute, 7, "")
			p.end(once, Abort, 7, "", OK)
			p.run(once, 8)
		},
		"a holder tells of its effect when the call is held": func(p *tape) {
			p.begin(steps, "h", Execute, 7, "")
			p.ask(Event{Key: steps, Verb: Start, Fence: 7}, Event{Word: OK})
			p.effect(steps, "c-1")
			p.begin(steps, "g", Held, 0, "")
			p.ask(Event{Key: steps, Verb: Settle, Fence: 7}, Event{Word: OK})
			p.end(steps, Complete, 7, "completed r", OK)
		},
		"a call that may be repeated is": func(p *tape) {
			p.begin(again, "h", Execute, 7, "")
			p.effect(again, "c-1")
			p.run(again, 8)
			p.end(again, Complete, 7, "completed q", Lost)
		},
		"an attempt that has begun nothing is followed by another": func(p *tape) {
			p.begin(steps, "h", Execute, 7, "")
			p.run(steps, 8)
		},
		"another payload is refused": func(p *tape) {
			p.run(once, 7)
			p.ask(Event{Key: once, Verb: Begin, Payload: 2}, Event{Word: Conflict})
		},
		"a call through the proxy and its duplicates": func(p *tape) {
			p.call(Answered, true, "201 r")
			p.call(Replay, false, "201 r")
		},
		"an upstream that did not answer has done it": func(p *tape) {
			p.call(None, true, "201 r")
			p.call(Held, false, "")
			p.call(Replay, false, "201 r") // somebody has settled it
		},
		"an upstream that could not be reached is asked again": func(p *tape) {
			p.call(Unsent, false, "")
			p.call(Answered, true, "201 r")
		},
		"a call is held, and then its holder proves that nothing was sent": func(p *tape) {
			first := p.send(Event{Key: routed, Verb: Call})
			p.call(InFlight, false, "")
			p.call(Held, false, "")
			p.answer(first, Event{Key: routed, Word: Unsent})
			p.call(Answered, true, "201 r")
		},
		"a timed lease is over, and another holder follows": func(p *tape) {
			p.begin(retry, "h", Execute, 7, "")
			p.now += int64(tapeLease)
			p.begin(retry, "g", Execute, 8, "")
			p.end(retry, Complete, 7, "completed r", Lost)
			p.end(retry, Complete, 8, "completed s", OK)
		},
		"a timed lease is extended, and its holder ends it": func(p *tape) {
			p.begin(timed, "h", Execute, 7, "")
			p.now += int64(tapeLease)
			p.ask(Event{Key: timed, Verb: Renew, Fence: 7}, Event{Word: OK})
			p.begin(timed, "g", InFlight, 0, "")
			p.end(timed, Complete, 7, "completed r", None)
			p.end(timed, Complete, 7, "completed r", OK)
		},
		"an abort whose answer is lost is applied, and another payload begins afresh": func(p *tape) {
			p.begin(timed, "h", Execute, 7, "")
			id := p.send(Event{Key: timed, Verb: Abort, Fence: 7})
			p.ask(Event{Key: timed, Verb: Begin, Holder: "g", Payload: 2}, Event{Word: Execute, Fence: 8})
			p.answer(id, Event{Key: timed, Verb: Abort, Fence: 7, Word: Lost})
		},
		"a failed attempt may be repeated": func(p *tape) {
			p.begin(retry, "h", Execute, 7, "")
			p.end(retry, Fail, 7, "", OK)
			p.end(retry, Abort, 7, "", Ended)
			p.run(retry, 8)
		},
		"an upstream that failed is asked again": func(p *tape) {
			p.call(Failed, true, "")
			p.call(Answered, true, "201 r")
		},
	})
}

// A claim that was never told to its holder is free for another payload.
func TestAnotherPayloadAfterNothingWasSent(t *testing.T) {
	areSound(t, map[string]func(p *tape){"the other is held": func(p *tape) {
		id := p.send(Event{Key: routed, Verb: Call})
		p.ask(Event{Key: routed, Verb: Call}, Event{Word: InFlight})
		p.answer(id, Event{Key: routed, Word: Unsent})
		p.ask(Event{Key: routed, Verb: Call, Payload: 2}, Event{Word: None})
		p.ask(Event{Key: routed, Verb: Call, Payload: 2}, Event{Word: Held})
		p.ask(Event{Key: routed, Verb: Call}, Event{Word: Conflict})
	}})
}

func areSound(t *testing.T, plays map[string]func(p *tape)) {
	for name, play := range plays {
		t.Run(name, func(t *testing.T) {
			p := newTape()
			play(p)
			for _, v := range p.log.Check() {
				t.Errorf("%s: %s\n%s", v.Rule, v.Text, p.log.Print(v.Key, 0))
			}
		})
	}
}

// TestPlantedViolations plants one of each kind.
func TestPlantedViolations(t *testing.T) {
	areFound(t, map[string]planted{
		"an effect is made twice": {func(p *tape) {
			p.run(once, 7)
			p.effect(once, "c-9")
		}, []string{RuleTwice}},
		"an attempt is ended behind its holder's back, and another is let in": {func(p *tape) {
			p.begin(once, "h", "unknown", 0, "")
			id := p.begin(once, "h", Execute, 7, "")
			p.effect(once, id)
			p.end(once, Complete, 7, "completed r", Ended)
			id = p.begin(once, "g", Execute, 8, "")
			p.effect(once, id)
		}, []string{RuleTwice, RuleEnded, RuleOrder}},
		"an answer changes": {func(p *tape) {
			p.run(once, 7)
			p.send(Event{Key: once, Verb: Complete, Fence: 7, Outcome: "completed s"})
			p.begin(once, "g", Replay, 0, "completed s")
		}, []string{RuleAnswer, RuleOrder}},
		"an answer differs at one node in the end": {func(p *tape) {
			p.run(once, 7)
			p.last(once, Replay, "completed r", "")
			p.send(Event{Key: once, Verb: Complete, Fence: 7, Outcome: "completed s"})
			p.ask(Event{Key: once, Verb: Begin, Final: true, Node: 2}, Event{Word: Replay, Outcome: "completed s"})
		}, []string{RuleAnswer, RuleOrder}},
		"an answer is that of another call": {func(p *tape) {
			p.run(once, 7)
			p.begin(once, "g", Replay, 0, "completed of another")
		}, []string{RuleMadeUp, RuleOrder}},
		"an answer is lost": {func(p *tape) {
			p.run(once, 7)
			p.last(once, Held, "", "abandoned")
		}, []string{RuleLost, RuleOrder}},
		"an answer was given once and is not kept": {func(p *tape) {
			p.call(Answered, true, "201 r")
			p.ask(Event{Key: routed, Verb: Call, Final: true}, Event{Word: Gone})
		}, []string{RuleLost}},
		"a call is in flight, held, and begins anew within the lease of its claim": {func(p *tape) {
			late := p.send(Event{Key: once, Verb: Begin, Holder: "h"})
			p.begin(once, "g", InFlight, 0, "")
			p.begin(once, "g", Held, 0, "")
			p.answer(late, Event{Key: once, Word: Execute, Fence: 8})
			p.ask(Event{Key: once, Verb: Renew, Fence: 8}, Event{Word: OK})
		}, []string{RuleOrder}},
		"a fence falls": {func(p *tape) {
			p.begin(once, "h", Execute, 7, "")
			p.end(once, Abort, 7, "", OK)
			p.begin(once, "g", Execute, 6, "")
		}, []string{RuleFence, RuleOrder}},
		"a fence is given twice": {func(p *tape) {
			p.begin(once, "h", Execute, 7, "")
			p.end(once, Abort, 7, "", OK)
			p.begin(once, "g", Execute, 7, "")
		}, []string{RuleFence, RuleOrder}},
		"a call is in flight for ever": {func(p *tape) {
			p.begin(once, "h", Execute, 7, "")
			p.last(once, InFlight, "", "")
		}, []string{RuleForever}},
		"a node does not answer any more": {func(p *tape) {
			p.run(once, 7)
			p.ask(Event{Key: once, Verb: Begin, Final: true}, Event{Word: "store_unavailable", Status: 503})
		}, []string{RuleSilent}},
		"a call is held without a reason": {func(p *tape) {
			p.begin(once, "h", Execute, 7, "")
			p.last(once, Held, "", "")
		}, []string{RuleReason}},
		"a call is held although its upstream can be asked": {func(p *tape) {
			id := p.send(Event{Key: asked, Verb: Call})
			p.add(Event{Kind: Arrival, Key: asked, ID: id})
			p.add(Event{Kind: Effect, Key: asked, ID: id, Outcome: "201 r"})
			p.answer(id, Event{Key: asked, Word: None})
			p.ask(Event{Key: asked, Verb: Call, Final: true}, Event{Word: Held})
			p.add(Event{Kind: Reason, Key: asked, Node: 1, Text: "abandoned"})
		}, []string{RuleUnsettled}},
		"an end that counts is denied": {func(p *tape) {
			p.begin(once, "h", Execute, 7, "")
			p.end(once, Complete, 7, "completed r", None)
			p.end(once, Complete, 7, "completed r", Lost)
			p.last(once, Replay, "completed r", "")
		}, []string{RuleDenied}},
		"a right is forgotten": {func(p *tape) {
			p.begin(once, "h", Execute, 7, "")
			p.end(once, Complete, 7, "completed r", NotFound)
		}, []string{RuleForgotten}},
		"a request reaches the upstream twice": {func(p *tape) {
			id := p.send(Event{Key: routed, Verb: Call})
			p.add(Event{Kind: Arrival, Key: routed, ID: id})
			p.add(Event{Kind: Arrival, Key: routed, ID: id})
			p.answer(id, Event{Key: routed, Word: None})
		}, []string{RuleSentTwice}},
		"a request reaches the upstream that was said not to be sent": {func(p *tape) {
			p.call(Unsent, true, "")
		}, []string{RuleSent}},
		"a node has a fault": {func(p *tape) {
			p.begin(once, "h", Internal, 0, "")
		}, []string{RuleInternal}},
		"two have the right to execute at once": {func(p *tape) {
			p.begin(once, "h", Execute, 7, "")
			p.begin(once, "g", Execute, 8, "")
		}, []string{RuleOrder}},
		"an outcome is forgotten for a moment": {func(p *tape) {
			p.run(once, 7)
			p.begin(once, "g", InFlight, 0, "")
		}, []string{RuleOrder}},
		"another payload is let in": {func(p *tape) {
			p.begin(retry, "h", Execute, 7, "")
			p.end(retry, Fail, 7, "", OK)
			p.ask(Event{Key: retry, Verb: Begin, Payload: 2}, Event{Word: Execute, Fence: 8})
		}, []string{RuleOrder}},
		"a renewal revives what was held": {func(p *tape) {
			p.begin(once, "h", Execute, 7, "")
			p.begin(once, "g", Held, 0, "")
			p.ask(Event{Key: once, Verb: Renew, Fence: 7}, Event{Word: OK})
		}, []string{RuleOrder}},
		"a timed lease is taken over too early": {func(p *tape) {
			p.begin(retry, "h", Execute, 7, "")
			p.begin(retry, "g", Execute, 8, "")
		}, []string{RuleOrder}},
		"a timed lease is held too early": {func(p *tape) {
			p.begin(timed, "h", Execute, 7, "")
			p.begin(timed, "g", Held, 0, "")
		}, []string{RuleOrder}},
		"a timed lease is taken over too early after it was extended": {func(p *tape) {
			p.begin(retry, "h", Execute, 7, "")
			p.now += int64(tapeLease)
			p.ask(Event{Key: retry, Verb: Renew, Fence: 7}, Event{Word: OK})
			p.begin(retry, "g", Execute, 8, "")
		}, []string{RuleOrder}},
		"a call is held that may be repeated": {func(p *tape) {
			p.begin(retry, "h", Execute, 7, "")
			p.now += int64(tapeLease)
			p.begin(retry, "g", Held, 0, "")
		}, []string{RuleOrder}},
		"the only holder is told that another one has the right": {func(p *tape) {
			p.begin(timed, "h", Execute, 7, "")
			p.end(timed, Complete, 7, "completed r", Lost)
		}, []string{RuleOrder}},
		"a holder is told that its attempt has ended, and another has begun": {func(p *tape) {
			p.begin(retry, "h", Execute, 7, "")
			p.now += int64(tapeLease)
			p.begin(retry, "g", Execute, 8, "")
			p.end(retry, Abort, 7, "", Ended)
		}, []string{RuleOrder}},
		"a call that has failed for good is repeated": {func(p *tape) {
			p.begin(timed, "h", Execute, 7, "")
			p.end(timed, Fail, 7, "failed r", OK)
			p.begin(timed, "g", Execute, 8, "")
		}, []string{RuleOrder}},
		"a call through the proxy runs beside another": {func(p *tape) {
			first := p.send(Event{Key: routed, Verb: Call})
			second := p.send(Event{Key: routed, Verb: Call})
			p.add(Event{Kind: Arrival, Key: routed, ID: first})
			p.add(Event{Kind: Arrival, Key: routed, ID: second})
			p.answer(first, Event{Key: routed, Word: None})
			p.answer(second, Event{Key: routed, Word: None})
		}, []string{RuleOrder}},
	})
}

// planted is a history with the rules that it breaks.
type planted struct {
	play func(p *tape)
	want []string
}

func areFound(t *testing.T, tests map[string]planted) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newTape()
			test.play(p)
			found := p.log.Check()
			slices.Sort(test.want)
			if got := rulesOf(found); !slices.Equal(got, test.want) {
				t.Errorf("found %q, want %q: %v", got, test.want, found)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	p := newTape()
	p.log.lease = time.Second
	p.run(once, 7)
	p.last(once, Replay, "completed r", "")
	p.begin(steps, "h", Held, 0, "")
	p.last(steps, Held, "", "abandoned")
	id := p.begin(again, "h", Execute, 8, "")
	p.effect(again, id)
	p.end(again, Hold, 8, "", OK)
	p.last(again, Held, "", "given up")
	s := p.log.Summary()
	if s.Keys != 3 || s.Requests != 8 || s.Effects != 2 || s.Words[Held] != 3 || s.Held != 2 || s.HeldWithout != 1 || s.Early != 1 || s.Reasons["abandoned"] != 1 {
		t.Errorf("%+v", s)
	}
	p.log.Add(Event{Kind: Fault, Verb: ClockFault})
	if n := p.log.Summary().Early; n != 1 {
		t.Errorf("a clock that leaps ends no lease, and %d are counted", n)
	}
}

func TestPrint(t *testing.T) {
	p := newTape()
	p.log.Add(Event{Kind: Fault, Text: "disk.stall begins: 3.437s"})
	p.begin(once, "h1", "unknown", 0, "")
	p.run(once, 7)
	p.log.Add(Event{Kind: Fault, At: int64(time.Hour), Text: "long after"})
	got := p.log.Print(once, 0)
	want := []string{
		"    0.0000 !! disk.stall begins: 3.437s",
		"    0.0010 -> c-1        begin     node 1 payload 1 fence 0 holder h1",
		"    0.0020 <- c-1        begin     unknown 0 fence 0",
		"    0.0030 -> c-2        begin     node 1 payload 1 fence 0 holder h",
		"    0.0040 <- c-2        begin     execute 0 fence 7",
		"    0.0050 ** EFFECT by c-2 payload 0 fence 0",
		"    0.0060 -> c-3        complete  node 1 payload 1 fence 7 holder  completed r",
	}
	for i, line := range strings.Split(got, "\n")[:len(want)] {
		if !strings.HasPrefix(line, want[i]) {
			t.Errorf("line %d is %q, want %q", i+1, line, want[i])
		}
	}
	if strings.Contains(got, "long after") {
		t.Error("a fault of another time is shown")
	}
}
