// Package reconcile settles held calls by asking somebody what became of them: a URL of yours, or
// a vendor whose API is described by data.
package reconcile

import (
	"cmp"
	"context"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/finding"
	"github.com/semelhq/semel/store"
)

// Ask asks what became of a held call. It must not repeat the call. An error leaves it held.
type Ask func(ctx context.Context, held *semel.Record) (*finding.Finding, error)

// Form is how a door records what was found.
type Form struct {
	// Effect says what the outcome makes of an effect of the ledger that has no result. Empty: it
	// says nothing about that one.
	Effect func(outcome store.Disposition, name string) store.EffectState
	// Result is the answer that duplicates get; it isn't called for a finding without a status.
	Result func(f *finding.Finding) semel.Result
	// Failure says why there is none.
	Failure func(outcome store.Disposition, f *finding.Finding) store.Failure
	// Who was asked, for people.
	Who string
}

// By makes a reconciler that believes what ask finds.
func By(ask Ask, form Form) semel.Reconciler {
	return func(ctx context.Context, held semel.Record) (s semel.Settlement, err error) {
		f, err := ask(ctx, &held)
		if err != nil || f.Outcome == finding.Unknown {
			return s, err
		}
		if err := s.Outcome.UnmarshalText([]byte(f.Outcome)); err != nil {
			return s, err
		}
		s.Who = form.Who
		if f.Status != 0 {
			s.Result = form.Result(f)
		}
		if s.Outcome != semel.DispositionCompleted {
			failure := form.Failure(s.Outcome, f)
			failure.Message = cmp.Or(f.Message, failure.Message)
			s.Failure = &failure
		}
		for _, ef := range Open(&held) {
			if state := form.Effect(s.Outcome, ef.Name); state != "" {
				s.Effects = append(s.Effects, store.EffectFinding{Name: ef.Name, State: state})
			}
		}
		return s, nil
	}
}

// Open lists the effects that began and have no result.
func Open(held *semel.Record) (list []store.EffectRecord) {
	for _, ef := range held.Effects {
		if ef.State == store.EffectStarted {
			list = append(list, ef)
		}
	}
	return list
}
