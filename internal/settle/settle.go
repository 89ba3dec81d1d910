// Package settle turns an answer about a held call into its settlement, for the doors and package
// reconcile, which ask.
package settle

import (
	"cmp"
	"context"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/finding"
	"github.com/semelhq/semel/store"
)

// Ask finds out the outcome of a held call. It must not repeat the call. An error leaves it held.
type Ask func(ctx context.Context, held *semel.Record) (*finding.Finding, error)

// Form says how a door records a finding.
type Form struct {
	// Who settles the call, for the record. Source answers, in words, such as "the upstream".
	Who, Source string
	// Effect names the effect of the ledger that the answer is about. Empty: all without a result.
	Effect string
	// Refused is what a refusal makes of that effect.
	Refused store.EffectState
	// Result is the answer that duplicates get, of a finding with a status.
	Result func(f *finding.Finding) semel.Result
	// Words are the code of a failure, and what the answer says itself.
	Words func(f *finding.Finding) (code, text string)
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
		if f.Status != 0 && form.Result != nil {
			s.Result = form.Result(f)
		}
		state := store.EffectRefuted
		switch s.Outcome {
		case semel.DispositionCompleted:
			state = store.EffectConfirmed
		case semel.DispositionRejected:
			state = form.Refused
		}
		if s.Outcome != semel.DispositionCompleted {
			s.Failure = &store.Failure{Message: form.Source + " said so when it was asked"}
			if form.Words != nil {
				code, text := form.Words(f)
				s.Failure.Code, s.Failure.Message = code, cmp.Or(text, s.Failure.Message)
			}
			s.Failure.Message = cmp.Or(f.Message, s.Failure.Message)
		}
		for _, ef := range open(&held) {
			if form.Effect == "" || form.Effect == ef.Name {
				s.Effects = append(s.Effects, store.EffectFinding{Name: ef.Name, State: state})
			}
		}
		return s, nil
	}
}

// Waited reports whether what a held call may have done began so long ago: the newest of its open
// effects, or else its attempt. The record was written when it was due, by the store's clock.
func Waited(held *semel.Record, long time.Duration) bool {
	began := held.StartedAt
	for _, ef := range open(held) {
		began = max(began, ef.StartedAt)
	}
	return held.UpdatedAt.Sub(began) >= long
}

// EffectKey is the key of the effect that has no result; empty if there is none.
func EffectKey(held *semel.Record) (key string) {
	for _, ef := range open(held) {
		key = ef.Key
	}
	return key
}

// open lists the effects that began and have no result.
func open(held *semel.Record) (list []store.EffectRecord) {
	for _, ef := range held.Effects {
		if ef.State == store.EffectStarted {
			list = append(list, ef)
		}
	}
	return list
}
