package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// lease is longer than any test. Engines renew leases by the process's clock, and in a history
// only steps may happen.
const lease = 10 * time.Hour

// operations cover the policies that depend on a stored record.
var operations = []semel.Operation{
	{Name: "shared", Lease: lease, Share: semel.ShareTenant, Authorize: authorize, OnAbandoned: semel.RetryAbandoned},
	{Name: "hold", Lease: lease},
	{Name: "retry", Lease: lease, OnFailure: semel.RetryFailure, OnAbandoned: semel.RetryAbandoned},
	{Name: "ledger", Lease: lease, Effects: []string{"charge", "mail"}},
	{Name: "brief", Lease: lease, Window: time.Minute, RefuseLate: true},
	{Name: "asks", Lease: lease, Shields: []semel.Shield{semel.ShieldReconcile}, Reconcile: reconcile, ReconcileEvery: 5 * time.Minute},
	{Name: "small", Lease: lease, MaxResult: 8, OnFailure: semel.RetryFailure},
	{Name: "remembers", Lease: lease, Window: time.Minute, Remember: 3 * time.Hour, Effects: []string{"charge", "mail"}},
}

// identities is how many identities a history has: one for each operation, and a second one for
// the first operation.
const identities = 9

func (p *player) identity(i int) semel.ID {
	op := operations[i%len(operations)]
	id := semel.ID{Tenant: p.tenant, Principal: "p", Operation: op.Name, Key: fmt.Sprint("key-", i/len(operations))}
	if op.Share == semel.ShareTenant {
		id.Principal = ""
	}
	return id
}

// reconcile gives each attempt an outcome, depending on its number.
func reconcile(_ context.Context, held semel.Record) (semel.Settlement, error) {
	switch held.Attempt % 3 {
	case 1:
		return semel.Settlement{Outcome: semel.DispositionCompleted, Result: semel.Result{Data: []byte("found")}}, nil
	case 2:
		return semel.Settlement{Outcome: semel.DispositionAborted}, nil
	}
	return semel.Settlement{RetryAfter: time.Minute}, nil
}

func authorize(_ context.Context, call semel.Call, rec semel.Record) error {
	if call.Principal != rec.Principal {
		return errors.New("somebody else's answer")
	}
	return nil
}

func (p *player) engineStep(s step) answer {
	switch s.verb {
	case vBegin:
		return p.begin(s)
	case vSettle:
		return p.settle(s)
	case vLookup:
		rec, err := p.engine.Lookup(p.ctx, p.ids[s.id])
		return answer{"lookup " + found(err), p.outcome(err) + p.text(&rec)}
	case vForget:
		p.clock.advance(2 * time.Second) // otherwise it would wait for a clock that stands still
		err := p.engine.Purge(p.ctx, p.ids[s.id], semel.Removal{Reason: "test"})
		return answer{"forget " + done(err), p.outcome(err)}
	case vSweep:
		n, err := p.engine.Sweep(p.ctx)
		for range n.Reconciled { // they are asked in the background
			<-p.reconciled
		}
		kind := "sweep " + some(n.Due)
		if n.Forgotten > 0 {
			kind = "sweep forgets"
		}
		return answer{kind, p.outcome(err) + fmt.Sprintf("%+v", n)}
	}
	if len(p.attempts) == 0 {
		return answer{string(s.verb) + " nothing", ""}
	}
	// Usually the newest attempt; an old one is late.
	a := pick(p.attempts, max(s.a-6, 0))
	switch s.verb {
	case vEnd:
		return p.end(s, a)
	case vRenew:
		err := a.Renew(p.ctx)
		return p.about("renew", a, err)
	case vEffect:
		return p.effect(s, a)
	}
	p.fault = fmt.Errorf("no such step: %v", s)
	return answer{}
}

// begin makes a delivery.
func (p *player) begin(s step) answer {
	id := p.ids[s.id]
	call := semel.Call{Tenant: id.Tenant, Principal: "p", Operation: id.Operation, Key: id.Key, Fingerprint: payload("0")}
	if s.a > 9 {
		call.Fingerprint = payload("1")
	}
	if s.b > 6 {
		call.Principal = "q" // another record, or the same one if keys are shared
	}
	if s.c > 5 {
		call.FirstSent = p.clock.at.Add(-time.Duration(s.c-6) * 20 * time.Second).Time()
	}
	ans, err := p.engine.Begin(p.ctx, call)
	if ans.Attempt != nil {
		ans.Attempt.Detach() // the clock jumps for the store, but not for a holder in this process
		p.attempts = append(p.attempts, ans.Attempt)
	}
	kind := "begin " + string(ans.Decision)
	switch {
	case err != nil:
		kind = "begin error"
	case ans.Decision == semel.Replay && ans.Record.OnlyNamed():
		kind = "begin remembered"
	}
	text := p.outcome(err) + string(ans.Decision) + " " + ans.RetryAfter.String() + " "
	if ans.Record != nil {
		text += p.text(ans.Record)
	}
	return answer{kind, text}
}

// end ends an attempt, which may already have ended or been taken over.
func (p *player) end(s step, a *semel.Attempt) answer {
	result := semel.Result{Data: fmt.Appendf(nil, "%0*d", 2+s.c, s.c)}
	failure := store.Failure{Code: "code", Message: "it failed"}
	var err error
	kind := "complete"
	switch s.b {
	default:
		err = a.Complete(p.ctx, result)
	case 5:
		kind, err = "reject", a.Reject(p.ctx, failure, result)
	case 6, 7:
		kind, err = "fail", a.Fail(p.ctx, failure, result)
	case 8:
		kind, err = "abort", a.Abort(p.ctx, failure)
	case 9, 10:
		kind, err = "hold", a.Hold(p.ctx, "who knows")
	case 11:
		kind, err = "abandon", a.Abandon(p.ctx, "gone")
	}
	return p.about(kind, a, err)
}

func (p *player) effect(s step, a *semel.Attempt) answer {
	name := "charge"
	switch s.b {
	case 9, 10:
		name = "mail"
	case 11:
		name = "undeclared"
	}
	if s.c >= 6 && s.b < 9 {
		// Look for an attempt with an open effect, because most have none.
		for _, newer := range p.attempts {
			for _, ef := range newer.Effects() {
				if ef.State == store.EffectStarted {
					a, name = newer, ef.Name
				}
			}
		}
	}
	switch {
	case s.c < 6:
		_, err := a.StartEffect(p.ctx, name)
		return p.about("start effect", a, err)
	case s.c < 9:
		err := a.SettleEffect(p.ctx, store.EffectFinding{Name: name, State: store.EffectConfirmed, Result: semel.Result{Data: []byte("1234567")[:s.b%8]}})
		return p.about("confirm effect", a, err)
	}
	err := a.SettleEffect(p.ctx, store.EffectFinding{Name: name, State: store.EffectRefuted})
	return p.about("refute effect", a, err)
}

// about returns the result of an attempt's step, with the attempt's view of the record.
func (p *player) about(kind string, a *semel.Attempt, err error) answer {
	return answer{kind + " " + done(err), p.outcome(err) + fmt.Sprintf("attempt %d: ", a.Number()) + p.text(a.Record())}
}

// settle settles a call like an operator.
func (p *player) settle(s step) answer {
	settlement := semel.Settlement{
		Outcome: []store.Disposition{
			semel.DispositionCompleted, semel.DispositionAborted, semel.DispositionAbandoned, semel.DispositionRejected, semel.DispositionFailed, 0,
		}[s.a%6],
	}
	switch settlement.Outcome {
	case semel.DispositionCompleted:
		settlement.Result.Data = []byte("settled")
	case semel.DispositionRejected, semel.DispositionFailed:
		settlement.Failure = &store.Failure{Code: "settled"}
	}
	if s.b > 5 {
		settlement.Effects = []store.EffectFinding{{Name: "charge", State: []store.EffectState{store.EffectConfirmed, store.EffectRefuted}[s.c%2]}}
	}
	rec, err := p.engine.Settle(p.ctx, p.ids[s.id], settlement, "test")
	return answer{"settle " + done(err), p.outcome(err) + p.text(&rec)}
}

func done(err error) string {
	if err != nil {
		return "refused"
	}
	return "done"
}

func found(err error) string {
	if err != nil {
		return "nothing"
	}
	return "record"
}
