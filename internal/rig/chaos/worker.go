//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/rig/history"
	"github.com/semelhq/semel/internal/rig/stage"
)

// worker delivers calls, and executes them when it may, as the API's documents say.
type worker struct {
	*client
	// effect makes an effect, which is there once it returns.
	effect func(history.Event)
	// unit is the longest pause after the first try.
	unit time.Duration
}

// deliveryTimeout is how long a delivery is retried.
const deliveryTimeout = 25 * time.Second

// attempt is one delivery at work.
type attempt struct {
	*worker
	job job
	d   delivery
	rng *rand.Rand
	// made are the receipts of this delivery's effects, by the fence: a holder that gets
	// the same claim again doesn't repeat its effect.
	made map[int64]string
}

// deliver makes one delivery: it retries until it has a final answer, or gives up.
func (w *worker) deliver(ctx context.Context, j job) {
	a := &attempt{worker: w, job: j, made: map[int64]string{}, rng: rand.New(rand.NewPCG(j.Seed, 1))}
	a.d = delivery{op: j.Op, key: j.Key, number: j.Number, caller: j.Caller, payload: j.Payload, wait: j.Wait}
	if j.Named {
		a.d.holder = w.id()
	}
	ctx, cancel := context.WithTimeout(ctx, deliveryTimeout)
	defer cancel()
	for tries := 0; ctx.Err() == nil; tries++ {
		if a.once(ctx, tries) {
			return
		}
	}
}

// node is any of them.
func (a *attempt) node() int { return 1 + a.rng.IntN(len(a.nodes)) }

// once asks once, and reports whether that is the end of it.
func (a *attempt) once(ctx context.Context, tries int) (ended bool) {
	got := a.deliverTo(a.node())
	switch got.word {
	case history.Execute:
		return a.execute(ctx, got)
	case history.Replay, history.Answered, history.Conflict, history.Held, history.Gone, history.Superseded, history.OtherCaller:
		return true
	case history.InFlight, history.Gap:
		if tries > 8 {
			return true
		}
	}
	a.pause(ctx, got, tries)
	return false
}

// deliverTo makes the delivery at a node, once.
func (a *attempt) deliverTo(node int) answer {
	if !rules[a.d.op].Routed {
		return a.begin(&a.d, node)
	}
	hangup := a.job.Hangup
	a.job.Hangup = 0
	return a.call(&a.d, node, hangup)
}

// pause waits before something is sent again: as long as Retry-After says, or longer each
// time without it.
func (a *attempt) pause(ctx context.Context, got answer, tries int) {
	stage.Pause(ctx, max(got.after, span(a.rng, a.unit/10, a.unit<<min(tries, 4))))
}

// execute does the work of an attempt, and reports whether the delivery has ended.
// Otherwise the delivery is sent again, to get the outcome of the call.
func (a *attempt) execute(ctx context.Context, right answer) (ended bool) {
	working, done := context.WithCancel(ctx)
	defer done()
	var lost atomic.Bool // a renewal was told so
	if a.job.Renews {
		go a.renew(working, right, func() {
			lost.Store(true)
			done()
		})
	}
	stage.Pause(working, a.job.Before)
	if working.Err() != nil {
		return false // the right is lost: no effect is made
	}
	switch a.job.End {
	case history.Abort:
		return a.end(ctx, right, history.Abort, "", map[string]any{})
	case history.Reject, history.Fail:
		return a.refuse(ctx, right)
	}
	receipt, again := a.made[right.fence]
	if !again && a.d.op == opSteps {
		var word string
		switch receipt, word = a.start(working, right); word {
		case history.OK:
		case unclear:
			return a.end(ctx, right, history.Hold, "", map[string]any{"reason": "nobody knows what became of the effect"})
		default:
			return false // the right is lost: no effect is made
		}
	}
	if receipt == "" {
		receipt = a.makeEffect(right)
	}
	stage.Pause(working, a.job.After)
	switch {
	case lost.Load():
		return false
	case a.job.End == vanish:
		return true
	case a.job.End == history.Hold:
		return a.end(ctx, right, history.Hold, "", map[string]any{"reason": "the worker gives up"})
	case a.d.op == opSteps && !a.settle(ctx, right, receipt):
		return false
	}
	result := map[string]any{"key": a.d.key, "amount": a.d.payload, "fence": right.fence, "receipt": receipt}
	text, err := json.Marshal(result)
	if err != nil {
		panic(err) // it is made of strings and numbers
	}
	return a.end(ctx, right, history.Complete, "completed "+string(text), map[string]any{"result": json.RawMessage(text)})
}

// makeEffect makes the effect, with a unique receipt. If the holder gets the same claim
// again, it doesn't repeat the effect.
func (a *attempt) makeEffect(right answer) (receipt string) {
	receipt = fmt.Sprintf("%s-%016x", a.name, rand.Uint64())
	e := a.d.event("", 0)
	e.Kind, e.At, e.ID, e.Fence, e.Text = history.Effect, now(), a.name, right.fence, receipt
	a.effect(e)
	a.made[right.fence] = receipt
	return receipt
}

// refuse ends the work without an effect, for good.
func (a *attempt) refuse(ctx context.Context, right answer) bool {
	why := refusal{Code: "no_money", Message: fmt.Sprintf("attempt %d of %s found none", right.fence, a.name)}
	disposition := map[string]string{history.Reject: "rejected", history.Fail: "failed"}[a.job.End]
	return a.end(ctx, right, a.job.End, fmt.Sprintf("%s %s: %s", disposition, why.Code, why.Message), map[string]any{"error": why})
}

// renew extends the lease at a third of it until the work ends. If the lease is lost, the
// holder stops at once.
func (a *attempt) renew(ctx context.Context, right answer, lost func()) {
	rng := rand.New(rand.NewPCG(a.job.Seed, 2))
	for {
		stage.Pause(ctx, right.lease/3)
		if ctx.Err() != nil {
			return
		}
		got := a.on(&a.d, 1+rng.IntN(len(a.nodes)), history.Renew, right, "", nil)
		switch got.word {
		case history.Lost, history.Ended, history.NotFound:
			lost()
			return
		}
	}
}

// unclear is the error of start for an effect that may have been made before.
const unclear = "unclear"

// start makes the intent of the effect durable. The receipt is that of an earlier
// attempt if that has made the effect.
func (a *attempt) start(ctx context.Context, right answer) (receipt, word string) {
	intent := map[string]any{"name": "charge"}
	for tries := 0; ctx.Err() == nil; tries++ {
		got := a.on(&a.d, a.node(), history.Start, right, "", intent)
		switch {
		case got.word == history.OK && got.status == 201:
			return "", history.OK
		case got.word == history.OK && got.effect.State == "confirmed" && json.Unmarshal(got.effect.Result, &receipt) == nil:
			return receipt, history.OK
		case got.word == history.OK || got.word == "effect_unknown":
			return "", unclear
		case got.word == history.None || got.status >= 500:
			// An earlier request got no answer, and the effect wasn't made.
			intent["not_called"] = true
			a.pause(ctx, got, tries)
		default:
			return "", got.word
		}
	}
	return "", history.Lost
}

// settle records the result of the effect, and reports whether that was accepted.
func (a *attempt) settle(ctx context.Context, right answer, receipt string) bool {
	finding := map[string]any{"name": "charge", "state": "confirmed", "result": receipt}
	for tries := 0; ctx.Err() == nil; tries++ {
		got := a.on(&a.d, a.node(), history.Settle, right, "", finding)
		if got.word != history.None && got.status < 500 {
			return got.word == history.OK
		}
		a.pause(ctx, got, tries)
	}
	return false
}

// end ends the execution, and retries until it gets an answer. It reports whether the
// delivery has ended with it.
func (a *attempt) end(ctx context.Context, right answer, verb, outcome string, body any) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deliveryTimeout)
	defer cancel()
	for tries := 0; ctx.Err() == nil; tries++ {
		got := a.on(&a.d, a.node(), verb, right, outcome, body)
		if got.word != history.None && got.status < 500 && got.status != 429 {
			if got.word == history.OK && a.job.Twice {
				a.job.Twice = false
				continue
			}
			return got.word == history.OK
		}
		a.pause(ctx, got, tries)
	}
	return true
}
