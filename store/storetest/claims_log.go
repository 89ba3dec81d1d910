package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/history"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// key returns one of the keys that the clients of a group fight for.
func (r *rig) key(group, n int) string { return fmt.Sprintf("%d-%d-%d", r.seed, group, n) }

// delivery is a call that a client makes.
type delivery struct {
	op      semel.Operation
	key     string
	payload int
	wait    time.Duration
	final   bool // after the faults
}

func (d delivery) call() semel.Call {
	c := call(d.op, d.key)
	c.Fingerprint, c.Wait = payload(fmt.Sprint(d.payload)), d.wait
	return c
}

// event returns something that happens to a call now.
func (r *rig) event(d delivery, kind history.Kind) history.Event {
	return history.Event{At: int64(time.Since(r.start)), Kind: kind, Key: d.op.Name + "/" + d.key, Payload: d.payload, Final: d.final}
}

// ask logs a request, and returns a function that logs its answer.
func (r *rig) ask(e *holder, d delivery, verb string, fence int64, outcome string) (answered func(word string, fence int64, outcome string)) {
	ev := r.event(d, history.Request)
	ev.ID, ev.Verb, ev.Node, ev.Fence, ev.Outcome = fmt.Sprint("r-", r.asked.Add(1)), verb, e.number, fence, outcome
	r.log.Add(ev)
	return func(word string, fence int64, outcome string) {
		ev.Kind, ev.At, ev.Word, ev.Fence, ev.Outcome = history.Answer, int64(time.Since(r.start)), word, fence, outcome
		r.log.Add(ev)
	}
}

// begin makes one delivery, and returns the attempt if it may execute. During the faults its
// caller gives up soon.
func (r *rig) begin(ctx context.Context, e *holder, d delivery) (*semel.Attempt, error) {
	if !d.final {
		limited, cancel := context.WithTimeout(ctx, 60*time.Millisecond)
		defer cancel()
		ctx = limited
	}
	answered := r.ask(e, d, history.Begin, 0, "")
	ans, err := e.Begin(ctx, d.call())
	if err != nil {
		answered(history.None, 0, "")
		return nil, err
	}
	outcome := ""
	if ans.Decision == semel.Replay {
		outcome = ended(ans.Record.Disposition, string(ans.Record.Result.Data))
	}
	word := string(ans.Decision)
	if !slices.Contains([]semel.Decision{semel.Execute, semel.Replay, semel.InFlight, semel.Held, semel.Conflict}, ans.Decision) {
		word = history.Internal // no call in this test may get it
	}
	answered(word, ans.Record.Fence, outcome)
	if ans.Attempt != nil {
		if earlier := ans.Record.Earlier; len(earlier) > 0 && earlier[len(earlier)-1].Disposition == semel.DispositionAbandoned {
			r.takeovers.Add(1)
		}
	}
	return ans.Attempt, nil
}

// ended returns an outcome as every duplicate must get it.
func ended(how store.Disposition, result string) string { return how.String() + " " + result }

// hold works under an attempt and ends it.
func (r *rig) hold(ctx context.Context, e *holder, d delivery, a *semel.Attempt, random *rand.Rand) {
	work := time.Duration(random.IntN(15)) * time.Millisecond
	if random.IntN(4) == 0 {
		work += 2 * shortLease
	}
	_ = pass(ctx, work)
	if random.IntN(4) == 0 {
		r.end(e, d, history.Renew, a, "", func() error { return a.Renew(ctx) })
	}
	verbs := []string{history.Complete, history.Reject, history.Fail, history.Abort, history.Hold}
	weights := []int{55, 5, 15, 22, 3}
	p := random.IntN(100)
	verb := verbs[slices.IndexFunc(weights, func(w int) bool { p -= w; return p < 0 })]
	if verb != history.Abort { // it says that there was no effect
		r.log.Add(r.event(d, history.Effect))
	}
	result := fmt.Sprintf("result of fence %d by engine %d", a.Fence(), e.number)
	res, f := semel.Result{Data: []byte(result)}, store.Failure{Code: "code"}
	outcome, end := "", func() error { return a.Hold(ctx, result) }
	switch verb {
	case history.Complete:
		outcome, end = ended(semel.DispositionCompleted, result), func() error { return a.Complete(ctx, res) }
	case history.Reject:
		outcome, end = ended(semel.DispositionRejected, result), func() error { return a.Reject(ctx, f, res) }
	case history.Fail:
		if end = func() error { return a.Fail(ctx, f, res) }; !shortRules[d.op.Name].Retries {
			outcome = ended(semel.DispositionFailed, result)
		}
	case history.Abort:
		end = func() error { return a.Abort(ctx, f) }
	}
	for range 4 {
		if r.end(e, d, verb, a, outcome, end) != history.None || pass(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
}

// end logs a step of a holder, and returns its answer.
func (r *rig) end(e *holder, d delivery, verb string, a *semel.Attempt, outcome string, do func() error) (word string) {
	answered := r.ask(e, d, verb, a.Fence(), outcome)
	err := do()
	switch {
	case err == nil:
		answered(history.OK, a.Fence(), outcome)
		return history.OK
	case errors.Is(err, semel.ErrLeaseLost):
		word = history.Lost
	case errors.Is(err, &semel.Error{Code: semel.CodeAlreadyEnded}), errors.Is(err, &semel.Error{Code: semel.CodeIllegalTransition}):
		word = history.Ended
	default:
		word = history.None
	}
	answered(word, a.Fence(), "")
	return word
}

// settle ends the faults and asks about every key until its answer is a lasting one.
func (r *rig) settle(ctx context.Context) error {
	// Log its writes, too: an engine may withdraw a claim that this one declares held.
	logged, _ := faultstore.New(r.store, &faultstore.Options{Reached: r.written.reached})
	e, err := semel.New(logged, &semel.Options{Operations: shortOps})
	if err != nil {
		return err
	}
	defer e.Close(ctx)
	for group := range rigGroups {
		for n := range 2 * rigPairs {
			for _, op := range shortOps {
				r.settleKey(ctx, &holder{Engine: e, number: -1}, delivery{op: op, key: r.key(group, n), payload: 1, final: true})
			}
		}
	}
	return nil
}

// settleKey asks about one key. The check finds a key that stays in flight although nobody is
// working on it.
func (r *rig) settleKey(ctx context.Context, e *holder, d delivery) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := d.call()
	for {
		rec, err := e.Lookup(ctx, c.ID(d.op.Share))
		if err == nil && rec.Fingerprint == payload("2") {
			d.payload = 2
		}
		a, unanswered := r.begin(ctx, e, d)
		if a != nil {
			r.end(e, d, history.Abort, a, "", func() error { return a.Abort(ctx, store.Failure{}) })
			return
		}
		if err == nil && rec.Held {
			reason := r.event(d, history.Reason)
			reason.Node, reason.Text = e.number, rec.HeldReason
			r.log.Add(reason)
		}
		over := err == nil && unanswered == nil && (rec.State.Terminal() || rec.Held)
		if over || pass(ctx, 5*time.Millisecond) != nil {
			return
		}
	}
}

// close ends the engines and waits for late writes.
func (r *rig) close(ctx context.Context) error {
	var errs []error
	for _, e := range r.engines {
		errs = append(errs, e.Close(ctx))
		e.control.Settle()
	}
	return errors.Join(errs...)
}

// check checks the answers by the rules for histories, and the writes by the rules for records.
func (r *rig) check() error {
	policies := map[string]semel.Operation{opShortHold.Name: opShortHold, opShortRetry.Name: opShortRetry}
	errs := []error{r.written.check(func(name string) semel.Operation { return policies[name] })}
	for _, v := range r.log.Check() {
		errs = append(errs, fmt.Errorf("%s: %s: %s\n%s", v.Rule, v.Key, v.Text, strings.TrimRight(r.log.Print(v.Key, 0), "\n")))
	}
	return errors.Join(errs...)
}

// report says what happened.
func (r *rig) report() claimReport {
	rep := claimReport{Summary: r.log.Summary(), takeovers: int(r.takeovers.Load()), writes: r.written.count, faults: map[faultstore.Fault]int{}}
	for _, e := range r.engines {
		for fault, n := range e.control.Fired() {
			rep.faults[fault] += n
		}
	}
	return rep
}
