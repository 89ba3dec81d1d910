package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// interrupting is a store that does something once, before a write that begins a number: its claim,
// or after that the mark. If that fails, the process has died: the store can't be reached any more.
type interrupting struct {
	semel.Store
	mark bool
	once func(write func() error) error
	dead error
}

var errDied = errors.New("its process has died")

func (s *interrupting) Apply(ctx context.Context, w store.Write) (cur *semel.Record, applied bool, err error) {
	if s.dead != nil {
		return nil, false, s.dead
	}
	if once := s.once; once != nil && (w.Record.Mark != nil) == s.mark {
		s.once = nil
		done := false
		s.dead = once(func() error {
			done = true
			cur, applied, err = s.Store.Apply(ctx, w)
			return err
		})
		if s.dead != nil || done {
			return cur, applied, errors.Join(s.dead, err)
		}
	}
	return s.Store.Apply(ctx, w)
}

// interrupted delivers a number by a separate process. Something happens to it when it is about
// to write the claim, or the mark after that: it dies before or after the write, or another
// delivery is faster.
func (p *sequencePlayer) interrupted() error {
	c, other := p.call(), p.call()
	s := &interrupting{Store: p.store, mark: p.rng.IntN(4) > 0}
	how := p.rng.IntN(4)
	var raced error
	s.once = func(write func() error) error {
		p.did([]string{"crash before", "crash after", "race", "race"}[how], "number %d by %q, its mark %v", c.Sequence, c.BoundTo, s.mark)
		switch how {
		case 0:
			return errDied
		case 1:
			_ = write() // and nobody gets an answer
			return errDied
		}
		raced = p.deliver(p.engines[0], other)
		return nil
	}
	opts := p.opts
	if how < 2 {
		opts.StoreTimeout = 50 * time.Millisecond // for a store that can't be reached
	}
	e, err := semel.New(s, &opts)
	if err != nil {
		return err
	}
	ans, err := e.Begin(p.ctx, c)
	if cerr := e.Close(context.WithoutCancel(p.ctx)); err == nil {
		err = cerr
	}
	switch {
	case raced != nil:
		return raced
	case how < 2 && err != nil:
		p.highest = max(p.highest, c.Sequence)
		p.numbers[c.Sequence].ended, p.numbers[c.Sequence].crashed = true, true
		return nil
	case err != nil:
		return fmt.Errorf("number %d: %w", c.Sequence, err)
	}
	return p.judge(&c, &ans)
}

// end checks that the sequence still works, whatever happened: every outcome is there, the
// sequence continues, and then everything expires.
func (p *sequencePlayer) end() error {
	for _, c := range p.faults {
		c.Heal()
	}
	p.pass(2 * numberLease)
	for i := range p.numbers {
		n := &p.numbers[i]
		n.ended, n.running = n.mayHaveEnded(p.clock.at), nil
	}
	if _, err := p.engines[1].Sweep(p.ctx); err != nil {
		return err
	}
	if err := errors.Join(p.listed(), p.askAll(), p.release(), p.askAll()); err != nil {
		return err
	}
	if err := p.goesOn(); err != nil {
		return err
	}
	return p.forgotten()
}

// askAll delivers every number as every caller.
func (p *sequencePlayer) askAll() error {
	for i := range uint64(maxNumber) {
		for _, caller := range p.callers {
			if err := p.deliver(p.engines[i%2], p.delivery(i+1, caller)); err != nil {
				return err
			}
			if a := p.numbers[i+1].running; a != nil {
				p.numbers[i+1].running = nil
				if err := a.Abort(p.ctx, store.Failure{}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// release settles held numbers as having had no effect.
func (p *sequencePlayer) release() error {
	for i := uint64(1); i <= maxNumber; i++ {
		rec, err := p.engines[0].Lookup(p.ctx, p.id.Numbered(i))
		if err == nil && rec.Held {
			_, err = p.engines[0].Settle(p.ctx, rec.ID, semel.Settlement{Outcome: semel.DispositionAborted}, "it never came")
		}
		if err != nil && !errors.Is(err, semel.ErrNotFound) {
			return err
		}
	}
	return nil
}

// listed checks that a search finds each completed number once, and no mark.
func (p *sequencePlayer) listed() error {
	if p.store.both.Search == nil {
		return nil
	}
	found := map[semel.ID]bool{}
	for q := (store.Query{Tenant: &p.id.Tenant, Key: p.id.Key, Limit: 2}); ; {
		page, err := p.engines[0].Search(p.ctx, q)
		if err != nil {
			return err
		}
		for _, rec := range page.Records {
			if found[rec.ID] || rec.Mark != nil {
				return fmt.Errorf("a search finds %+v", rec)
			}
			found[rec.ID] = true
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	for i := range p.numbers {
		if p.numbers[i].outcome != nil && !found[p.id.Numbered(uint64(i))] {
			return fmt.Errorf("a search doesn't find number %d", i)
		}
	}
	return nil
}

// goesOn lets a caller begin and complete the next number. If two may come next, whatever each
// may have done can be in the way of the other.
func (p *sequencePlayer) goesOn() error {
	var ans semel.Answer
	var err error
	for _, caller := range p.callers {
		next := uint64(maxNumber + 1)
		if ans, err = p.engines[0].Begin(p.ctx, p.delivery(next, caller)); err == nil && ans.Decision == semel.SequenceGap {
			next = ans.Record.Sequence
			ans, err = p.engines[1].Begin(p.ctx, p.delivery(next, caller))
		}
		if ans.Attempt != nil {
			return ans.Attempt.Complete(p.ctx, semel.Result{})
		}
	}
	if err == nil && ans.Decision == semel.OtherCaller {
		return nil
	}
	return fmt.Errorf("the sequence doesn't go on: %s, %v", ans.Decision, err)
}

// forgotten lets everything expire, and checks that no record remains.
func (p *sequencePlayer) forgotten() error {
	if p.store.both.Due == nil || p.store.both.Purge == nil {
		return nil
	}
	for i := range 6 {
		p.pass(2 * numberWindow)
		if _, err := p.engines[i%2].Sweep(p.ctx); err != nil {
			return err
		}
	}
	return p.nothing()
}
