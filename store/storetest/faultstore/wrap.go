package faultstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/semelhq/semel"
)

// verbs are the four verbs, failing.
type verbs struct {
	inner   semel.Store
	control *Control
	closed  context.Context // ends calls that hang
	close   context.CancelFunc
}

// call runs f, which calls the inner store, as the control has it. f returns
// the inner store's error.
func (s *verbs) call(ctx context.Context, v Verb, f func(context.Context) error) error {
	fate := s.control.choose(v)
	form := fate.form
	switch form {
	case NotApplied:
		return failed(v, form)
	case Applied:
		// Whatever the store said, "not found" too, the caller is not told.
		_ = f(ctx)
		return failed(v, form)
	case Late:
		if v == Apply || v == Purge || v == Append {
			ctx := context.WithoutCancel(ctx)
			s.control.late.Go(func() {
				if pause(s.closed, s.control.opts.Delay) == nil {
					// Nobody is left to be told of an error.
					_ = f(ctx)
				}
			})
		}
		return failed(v, form)
	case Hang:
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", failed(v, form), context.Cause(ctx))
		case <-fate.healed:
		case <-s.closed.Done():
		}
		return failed(v, form)
	case Slow:
		if err := pause(ctx, fate.before); err != nil {
			return fmt.Errorf("%w: %w", failed(v, form), err)
		}
		if err := f(ctx); err != nil {
			return err
		}
		if err := pause(ctx, fate.after); err != nil {
			return fmt.Errorf("%w: %w", failed(v, form), err)
		}
		return nil
	}
	return f(ctx)
}

// answer carries what a call returned past an error that was made up. A late
// call answers when nobody looks any more, so it has one of its own.
type answer[T any] struct {
	mu  sync.Mutex
	val T
}

func (a *answer[T]) set(v T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.val = v
}

// or gives the answer if err is nil.
func (a *answer[T]) or(err error) (T, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		var zero T
		return zero, err
	}
	return a.val, nil
}

type applied struct {
	cur     semel.Record
	applied bool
}

// Apply is [semel.Store.Apply].
func (s *verbs) Apply(ctx context.Context, w semel.Write) (semel.Record, bool, error) {
	var a answer[applied]
	err := s.call(ctx, Apply, func(ctx context.Context) error {
		cur, ok, err := s.inner.Apply(ctx, w)
		a.set(applied{cur, ok})
		if reached := s.control.opts.Reached; reached != nil {
			reached(w, cur, ok, err)
		}
		return err
	})
	got, err := a.or(err)
	return got.cur, got.applied, err
}

// Get is [semel.Store.Get].
func (s *verbs) Get(ctx context.Context, id semel.ID) (semel.Record, error) {
	var a answer[semel.Record]
	return a.or(s.call(ctx, Get, func(ctx context.Context) error {
		rec, err := s.inner.Get(ctx, id)
		a.set(rec)
		return err
	}))
}

// Now is [semel.Store.Now].
func (s *verbs) Now(ctx context.Context) (semel.Instant, error) {
	var a answer[semel.Instant]
	return a.or(s.call(ctx, Now, func(ctx context.Context) error {
		at, err := s.inner.Now(ctx)
		a.set(at)
		return err
	}))
}

// Close is [semel.Store.Close].
func (s *verbs) Close() error {
	s.close()
	s.control.Settle()
	return s.inner.Close()
}

// dueVerb adds [semel.DueStore].
type dueVerb struct{ *verbs }

func (s dueVerb) Due(ctx context.Context, q semel.DueQuery) (semel.DuePage, error) {
	var a answer[semel.DuePage]
	return a.or(s.call(ctx, Due, func(ctx context.Context) error {
		page, err := s.inner.(semel.DueStore).Due(ctx, q)
		a.set(page)
		return err
	}))
}

// purgeVerb adds [semel.PurgeStore].
type purgeVerb struct{ *verbs }

func (s purgeVerb) Purge(ctx context.Context, refs []semel.Ref) (int, error) {
	var a answer[int]
	return a.or(s.call(ctx, Purge, func(ctx context.Context) error {
		n, err := s.inner.(semel.PurgeStore).Purge(ctx, refs)
		a.set(n)
		return err
	}))
}

// searchVerb adds [semel.SearchStore].
type searchVerb struct{ *verbs }

func (s searchVerb) Search(ctx context.Context, q semel.Query) (semel.Page, error) {
	var a answer[semel.Page]
	return a.or(s.call(ctx, Search, func(ctx context.Context) error {
		page, err := s.inner.(semel.SearchStore).Search(ctx, q)
		a.set(page)
		return err
	}))
}

// evidenceVerb adds [semel.EvidenceStore]. Appending can be made to fail.
type evidenceVerb struct {
	*verbs
	semel.EvidenceStore
}

func (s evidenceVerb) AppendEvidence(ctx context.Context, entries []semel.Entry) error {
	return s.call(ctx, Append, func(ctx context.Context) error { return s.EvidenceStore.AppendEvidence(ctx, entries) })
}
