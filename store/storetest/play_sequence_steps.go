package storetest

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// The steps of a sequence's history besides its deliveries.

// finish ends an attempt, perhaps after its lease is over and others have continued.
func (p *sequencePlayer) finish() error {
	i := p.rng.Uint64N(maxNumber)
	for range maxNumber {
		if i = i%maxNumber + 1; p.numbers[i].running != nil {
			return p.finishNumber(i)
		}
	}
	return nil
}

func (p *sequencePlayer) finishNumber(i uint64) error {
	n := &p.numbers[i]
	a, late := n.running, n.lease <= p.clock.at
	n.running = nil
	p.runs++
	o := outcome{text: fmt.Sprint("run ", p.runs), caller: n.caller, until: p.clock.at.Add(n.window)}
	result, failure := semel.Result{Data: []byte(o.text)}, store.Failure{Code: "no"}
	var err error
	how := p.rng.IntN(10)
	switch how {
	case 0:
		err = a.Abort(p.ctx, failure)
	case 1:
		err = a.Reject(p.ctx, failure, result)
	case 2:
		err = a.Fail(p.ctx, failure, semel.Result{})
	case 3:
		err = a.Hold(p.ctx, "who knows")
	case 4: // its process has died
		n.ended = true
		return nil
	default:
		err = a.Complete(p.ctx, result)
	}
	lost := errors.Is(err, semel.ErrLeaseLost) || errors.Is(err, &semel.Error{Code: semel.CodeIllegalTransition}) || errors.Is(err, &semel.Error{Code: semel.CodeAlreadyEnded})
	switch {
	case late && lost:
		p.did("late end", "number %d", i)
		n.ended = true
		return nil
	case err != nil:
		return fmt.Errorf("the end of number %d: %w", i, err)
	}
	p.did([]string{"abort", "reject", "fail", "hold", "", "complete"}[min(how, 5)], "number %d", i)
	o.until, o.kept = max(o.until, a.Record().ExpiresAt), max(o.until, a.Record().AnswerUntil()) // for another caller's refusal
	switch how {
	case 1:
		n.refuse(o)
	case 2:
		n.ended, n.happened = true, o.until
	case 0:
	case 3:
		n.ended = true
	default:
		n.complete(o)
	}
	return nil
}

func (n *number) complete(o outcome) { n.outcome, n.ended, n.happened = &o, true, o.until }

func (n *number) refuse(o outcome) {
	n.ended = true
	if n.refused == nil {
		n.refused = map[string]outcome{}
	}
	n.refused[o.caller] = o
}

// settle settles a held number, if there is one.
func (p *sequencePlayer) settle() error {
	for i := uint64(1); i <= maxNumber; i++ {
		rec, err := p.engine().Lookup(p.ctx, p.id.Numbered(i))
		if err != nil && !errors.Is(err, semel.ErrNotFound) {
			return err
		}
		if err != nil || !rec.Held {
			continue
		}
		p.runs++
		how := semel.Settlement{Outcome: semel.DispositionAborted}
		o := outcome{text: fmt.Sprint("settled ", p.runs), caller: rec.BoundTo, until: p.clock.at.Add(rec.Policy.Window)}
		if !p.numbers[i].crashed && p.rng.IntN(2) == 0 {
			how = semel.Settlement{Outcome: semel.DispositionCompleted, Result: semel.Result{Data: []byte(o.text)}}
		}
		if rec, err = p.engine().Settle(p.ctx, rec.ID, how, "seen"); err != nil {
			return fmt.Errorf("settle number %d: %w", i, err)
		}
		o.until, o.kept = max(o.until, rec.ExpiresAt), max(o.until, rec.AnswerUntil()) // for another caller's refusal
		n := &p.numbers[i]
		p.did("settle", "number %d, %s", i, how.Outcome)
		if n.running = nil; how.Outcome == semel.DispositionCompleted {
			n.complete(o)
		}
		return nil
	}
	return nil
}

// compensate compensates a completed number, which changes nothing for its caller.
func (p *sequencePlayer) compensate() error {
	i := p.anyNumber()
	n := &p.numbers[i]
	if n.outcome == nil {
		return nil
	}
	p.did("compensate", "number %d", i)
	text := n.outcome.text
	_, err := p.engine().Compensate(p.ctx, p.id.Numbered(i), "p", "wrong")
	if n.outcome.kept <= p.clock.at && errors.Is(err, &semel.Error{Code: semel.CodeResultNotKept}) {
		return nil // too late for the first time
	}
	if err != nil {
		return fmt.Errorf("compensate number %d: %w", i, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.undone[text] != 1 {
		return fmt.Errorf("number %d was compensated %d times", i, p.undone[text])
	}
	return nil
}

// purgeOne purges one number. The others keep their outcomes and their order.
func (p *sequencePlayer) purgeOne() error {
	if p.store.both.Purge == nil {
		return nil
	}
	i := p.anyNumber()
	n := &p.numbers[i]
	p.clock.advance(2 * time.Second) // otherwise it would wait for a clock that stands still
	rec, err := p.store.Get(p.ctx, p.id.Numbered(i))
	if err == nil && (rec.Disposition != semel.DispositionAborted || len(rec.Earlier) > 0) {
		n.ended = true // something may have happened, and the record that shows it goes
	}
	err = p.engine().Purge(p.ctx, p.id.Numbered(i), semel.Removal{Reason: "test"})
	illegal := errors.Is(err, &semel.Error{Code: semel.CodeIllegalTransition})
	switch {
	case err == nil && n.running != nil && n.lease > p.clock.at:
		return fmt.Errorf("number %d is purged while it runs", i)
	case err == nil:
		p.did("purge one", "number %d", i)
		n.purged()
	case illegal && n.outcome == nil, errors.Is(err, semel.ErrNotFound) && n.outcome == nil:
	default:
		return fmt.Errorf("purge number %d: %w", i, err)
	}
	return nil
}

// purgeAll purges the sequence. Nothing is left of it, unless a number has no outcome yet.
func (p *sequencePlayer) purgeAll() error {
	if p.store.both.Purge == nil || p.store.both.Search == nil {
		return nil
	}
	p.clock.advance(2 * time.Second)
	err := p.engine().Purge(p.ctx, p.id, semel.Removal{Reason: "test"})
	switch {
	case err == nil && len(p.alive()) > 0:
		return fmt.Errorf("the sequence is purged while number %d runs", p.alive())
	case err == nil, errors.Is(err, semel.ErrNotFound): // it may be gone after a crash
		p.did("purge all", "")
		for i := range p.numbers {
			p.numbers[i] = number{former: p.numbers[i].allRefused()}
		}
		p.highest = 0
		return p.nothing()
	case !errors.Is(err, &semel.Error{Code: semel.CodeIllegalTransition}):
		return fmt.Errorf("purge the sequence: %w", err)
	}
	p.did("purge some", "")
	for i := uint64(1); i <= maxNumber; i++ {
		_, err := p.store.Get(p.ctx, p.id.Numbered(i))
		if n := &p.numbers[i]; errors.Is(err, semel.ErrNotFound) && (n.running == nil || n.lease <= p.clock.at) {
			n.purged()
		}
	}
	return nil
}

// purged forgets the outcome of the number, but not that the number has begun: a missing record
// proves nothing. The mark shows that for as long as the window, counted from the beginning.
func (n *number) purged() {
	*n = number{ended: n.ended, happened: min(n.happened, n.began.Add(n.window)), former: n.allRefused()}
}

// allRefused returns the refusals of a purged number, and earlier ones.
func (n *number) allRefused() map[string]outcome {
	all := maps.Clone(n.former)
	if all == nil {
		all = map[string]outcome{}
	}
	maps.Copy(all, n.refused)
	return all
}

// nothing checks that nothing of the sequence is stored.
func (p *sequencePlayer) nothing() error {
	for i := range uint64(maxNumber + 1) {
		id := p.id
		if i > 0 {
			id = id.Numbered(i)
		}
		if _, err := p.store.Get(p.ctx, id); !errors.Is(err, semel.ErrNotFound) {
			return fmt.Errorf("the record of %q is left (%v)", id.Key, err)
		}
	}
	return nil
}
