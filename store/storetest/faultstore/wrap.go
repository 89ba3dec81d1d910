package faultstore

import (
	"context"
	"fmt"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// verbs are the four verbs, which may fail.
type verbs struct {
	inner   semel.Store
	control *Control
	closed  context.Context // ends hanging calls
	close   context.CancelFunc
}

// call runs f, which calls the inner store, or fails, as the control says. After an error it
// returns the zero value.
func call[T any](ctx context.Context, s *verbs, v Verb, f func(context.Context) (T, error)) (none T, err error) {
	fate := s.control.choose(v)
	form := fate.form
	switch form {
	case Applied:
		// The caller never gets the store's answer, not even "not found".
		_, _ = f(ctx)
		return none, failed(v, form)
	case Late:
		if v == Apply || v == Purge || v == Append {
			ctx := context.WithoutCancel(ctx)
			s.control.late.Go(func() {
				if pause(s.closed, s.control.opts.Delay) == nil {
					_, _ = f(ctx) // nobody is left to get an error
				}
			})
		}
		return none, failed(v, form)
	case Hang:
		select {
		case <-ctx.Done():
			return none, fmt.Errorf("%w: %w", failed(v, form), context.Cause(ctx))
		case <-fate.healed:
		case <-s.closed.Done():
		}
		return none, failed(v, form)
	case NotApplied:
		return none, failed(v, form)
	}
	if form == Slow {
		if err := pause(ctx, fate.before); err != nil {
			return none, fmt.Errorf("%w: %w", failed(v, form), err)
		}
	}
	val, err := f(ctx)
	if err != nil {
		return none, err
	}
	if form == Slow {
		if err := pause(ctx, fate.after); err != nil {
			return none, fmt.Errorf("%w: %w", failed(v, form), err)
		}
	}
	return val, nil
}

// Apply is [store.Store.Apply].
func (s *verbs) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	type answer struct {
		cur     *semel.Record
		applied bool
	}
	a, err := call(ctx, s, Apply, func(ctx context.Context) (answer, error) {
		cur, applied, err := s.inner.Apply(ctx, w)
		if reached := s.control.opts.Reached; reached != nil {
			reached(w, cur, applied, err)
		}
		return answer{cur, applied}, err
	})
	return a.cur, a.applied, err
}

// Get is [store.Store.Get].
func (s *verbs) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	return call(ctx, s, Get, func(ctx context.Context) (*semel.Record, error) { return s.inner.Get(ctx, id) })
}

// Now is [store.Store.Now].
func (s *verbs) Now(ctx context.Context) (store.Instant, error) {
	return call(ctx, s, Now, s.inner.Now)
}

// Close is [store.Store.Close].
func (s *verbs) Close() error {
	s.close()
	s.control.Settle()
	return s.inner.Close()
}

// Extras returns the inner store's extras, which may fail.
func (s *verbs) Extras() store.Extras {
	x := s.inner.Extras()
	if x.Due != nil {
		x.Due = s
	}
	if x.Purge != nil {
		x.Purge = s
	}
	if x.Search != nil {
		x.Search = s
	}
	if x.Evidence != nil {
		x.Evidence = evidenceVerb{s, x.Evidence}
	}
	return x
}

// Due is [store.DueIndex.Due].
func (s *verbs) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	return call(ctx, s, Due, func(ctx context.Context) (store.DuePage, error) { return s.inner.Extras().Due.Due(ctx, q) })
}

// Purge is [store.Purger.Purge].
func (s *verbs) Purge(ctx context.Context, refs []store.Ref) (int, error) {
	return call(ctx, s, Purge, func(ctx context.Context) (int, error) { return s.inner.Extras().Purge.Purge(ctx, refs) })
}

// Search is [store.Searcher.Search].
func (s *verbs) Search(ctx context.Context, q store.Query) (store.Page, error) {
	return call(ctx, s, Search, func(ctx context.Context) (store.Page, error) { return s.inner.Extras().Search.Search(ctx, q) })
}

// evidenceVerb is an evidence log that fails to append if it should.
type evidenceVerb struct {
	verbs *verbs
	store.EvidenceLog
}

func (s evidenceVerb) AppendEvidence(ctx context.Context, entries []store.Entry) error {
	_, err := call(ctx, s.verbs, Append, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.EvidenceLog.AppendEvidence(ctx, entries)
	})
	return err
}
