package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/store"
)

// exchange connects a message's sender and its agent, in one form of this door.
type exchange interface {
	// send sends the message, with its effect's key, and passes the agent's answers to the
	// conversation. For an answer that is neither a task nor a message, it returns the finding
	// and the outcome to record.
	send(ctx context.Context, key string, c *conversation) (judge.Finding, outcome)
	// ask asks the agent for a task, as the answer to the message; nil if the agent doesn't say.
	ask(ctx context.Context, task string) json.RawMessage
	// rejoin passes on the recorded stream of another delivery but for its end, if there is one.
	// It reports whether it has begun, and whether the engine has to decide again.
	rejoin(ctx context.Context, call *semel.Call, ans *semel.Answer) (began, again bool)
	// follow passes on the agent's updates of a task. It reports false, and answers nothing, if
	// there are none, because the task has ended.
	follow(ctx context.Context, task string) bool
	// replay answers the sender with the recorded outcome, and refuse with a refusal.
	replay(o *outcome)
	refuse(f refusal)
}

// conversation is one delivery of a message.
type conversation struct {
	*guard
	exchange
	stream bool      // the sender wants events
	now    bool      // the sender doesn't want to wait for the end of a task
	until  time.Time // how long a duplicate waits for that otherwise

	execution door.Run
	said      event           // the agent's last event about the task
	answer    json.RawMessage // the agent's whole answer, if there is one
	held      func()          // sends the end of the answer, once the outcome is recorded; may be nil
	resumed   *outcome        // outcome of a message that an earlier attempt sent
	code      semel.Code      // code for the sender besides that, or instead
}

// converse delivers a message, answers its sender, and returns the event about it.
func (c *conversation) converse(ctx context.Context, call semel.Call) semel.Delivered {
	c.until = time.Now().Add(c.wait)
	result := c.deliver(ctx, call, c)
	e := door.EventOf(&result.Answer)
	var f refusal
	switch {
	case result.Decision == semel.Execute && result.err == nil:
		c.release()
		if c.resumed != nil && (c.resumed.Final || !c.current(ctx, c.resumed.Task)) {
			c.replay(c.resumed)
		}
		if c.code == "" {
			return e
		}
		f = refusalFor(c.code)
	case result.Decision == semel.Execute:
		f = refusalOf(result.err, nil)
	case result.task != "" && c.current(ctx, result.task):
		return e
	case result.err != nil:
		f = refusalOf(result.err, &result.Answer)
		if result.Decision == semel.Held {
			c.exchange.rejoin(ctx, &call, &result.Answer) // what there is before the refusal
		}
	default:
		c.replay(result.outcome)
		return e
	}
	c.refuse(f)
	e.Code = f.code
	return e
}

// current answers the sender with the current state of a task; a sender who wants a stream
// follows the task. It reports false, and answers nothing, if the agent doesn't say.
func (c *conversation) current(ctx context.Context, task string) bool {
	if c.stream && c.follow(ctx, task) {
		return true
	}
	answer := c.await(ctx, task)
	if answer != nil {
		c.replay(&outcome{Answer: answer})
	}
	return answer != nil
}

// await asks the agent for a task. For a sender who wants the task's end, it asks again until
// the task has ended, needs input, or the duplicate's time is over. Each pause grows by a
// quarter of the time so far, which bounds how much duplicates load the agent.
func (c *conversation) await(ctx context.Context, task string) (answer json.RawMessage) {
	for began := time.Now(); ; {
		if now := c.ask(ctx, task); now != nil {
			answer = now
		}
		e, pause := readEvent(answer), look+time.Since(began)/4
		if answer == nil || c.now || c.stream || e.final() || time.Until(c.until) < pause {
			return answer
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return answer
		}
	}
}

// Run sends the message. The agent's answer decides how the attempt ends.
func (c *conversation) Run(x door.Run) semel.Ending {
	// Nobody can call an agent back, so giving up with the lease would only lose its answer.
	ctx := context.WithoutCancel(x.Attempt.Context())
	c.execution = x
	var found judge.Finding
	var sent outcome
	key, known, err := c.start(ctx)
	switch {
	case errors.Is(err, &semel.Error{Code: semel.CodeEffectUnknown}):
		c.code = semel.CodeHeld
		return semel.Ending{Failure: store.Failure{Message: "an earlier attempt has sent the message, and its answer is not known"}}
	case err != nil:
		c.code = semel.CodeStoreUnavailable
		return semel.Ending{Disposition: semel.DispositionAborted, Failure: store.Failure{Message: "the message could not be recorded before it was sent"}}
	case known == "":
		if found, sent = c.send(ctx, key, c); c.said.kind == "" {
			end := sent.refusedEnding(found, c.operation.MaxResult)
			c.refute(ctx, &end)
			return end
		}
	}
	resumed := c.said.kind == ""
	if c.answer == nil { // in a stream, or from an earlier attempt
		if answer := c.ask(ctx, known+c.said.task); answer != nil {
			c.said, c.answer = readEvent(answer), answer
		}
	}
	o := outcomeOf(c.said, c.answer)
	o.Stream, o.Last = sent.Stream, sent.Last
	switch {
	case resumed && c.answer == nil:
		c.code = semel.CodeHeld
		return semel.Ending{Failure: store.Failure{Message: "the message has reached a task, and the agent doesn't say how far it is"}}
	case resumed:
		c.resumed = &o
	}
	return o.ending(c.said.state, c.operation.MaxResult)
}

// start records that the message is about to be sent. If an earlier attempt has reached a task
// with it, start finds that, and the message isn't sent again.
//
// A crash before the write leaves an attempt without an effect, which may run again if the
// operation declares its effects. A crash after it leaves a started effect: the call is held
// until it is settled. Where the claim lets an abandoned message be sent again there is none.
func (c *conversation) start(ctx context.Context) (key, known string, err error) {
	a := c.execution.Attempt
	if promised := a.Record().Policy; promised.Retry && !promised.Ledger {
		for _, ef := range a.Effects() {
			known += taskID(&ef)
		}
		return semel.EffectKey(a.Record(), TaskEffect), known, nil
	}
	ef, err := a.StartEffect(ctx, TaskEffect)
	if known = taskID(&ef); err == nil && ef.State != store.EffectStarted && known == "" {
		err = &semel.Error{Code: semel.CodeEffectUnknown} // somebody settled it without giving a task
	}
	return ef.Key, known, err
}

// hear takes a task, a message or an update from the agent's answer; leave passes it on.
//
// In a stream, it records which task the message has reached, so that duplicates can ask for
// it. A crash before that write leaves the effect started, and the call is held. A crash after
// it leaves the task known: the next attempt, or somebody who asks about a held call, gets its
// state. If it can't be recorded, duplicates wait for the end.
func (c *conversation) hear(e event, answer []byte, leave func()) {
	if e.kind == kindMessage || !c.stream {
		c.answer = bytes.Clone(answer)
	} else if c.said.task == "" {
		a := c.execution.Attempt
		id, _ := json.Marshal(e.task)                 // a string
		_, _ = a.StartEffect(a.Context(), TaskEffect) // it has already been started, unless messages are sent again
		_ = a.SettleEffect(a.Context(), store.EffectFinding{Name: TaskEffect, State: store.EffectConfirmed, Result: semel.Result{Data: id}})
	}
	if e.state != "" || e.kind == kindMessage || c.said.task == "" {
		c.said = e
	}
	c.hold(!c.stream || e.final(), leave)
}

// hold holds the end of the answer back until the outcome is recorded, so that nobody hears of an
// end that isn't recorded. Anything else is sent at once, behind what wasn't the end after all: so
// no more than one part is held, whatever the agent sends.
func (c *conversation) hold(final bool, leave func()) {
	c.release()
	if c.held = leave; !final {
		c.release()
	}
}

func (c *conversation) release() {
	if c.held != nil {
		c.held()
	}
	c.held = nil
}

// refute records that the message may be sent again, after an ending that lets the next
// delivery run. A crash before the write, or one that fails, leaves the effect started, and
// the call is held; a crash after it leaves an attempt that may run again.
func (c *conversation) refute(ctx context.Context, end *semel.Ending) {
	if end.Disposition == semel.DispositionAborted || end.Disposition == semel.DispositionFailed {
		_ = c.execution.Attempt.SettleEffect(ctx, store.EffectFinding{Name: TaskEffect, State: store.EffectRefuted})
	}
}
