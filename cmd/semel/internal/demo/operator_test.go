package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	semelclient "github.com/semelhq/semel/client"
	"github.com/semelhq/semel/store"
)

// operate does what an operator does with 'semel records list held' and 'semel records
// settle': it looks each held call up in the toy service's ledger, and says to Semel what
// became of it. It returns when the storm is over.
func (s *storm) operate(ctx context.Context, over <-chan struct{}) error {
	at, quiet := s.current()
	records, err := semelclient.New(at.URL, &semelclient.Options{AdminURL: at.AdminURL, Token: s.token})
	if err != nil {
		return err
	}
	defer records.Close()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		page, err := records.Search(ctx, store.Query{Held: true, Limit: store.MaxSearchLimit})
		if err == nil {
			err = s.settleAll(ctx, records, page.Records, quiet)
		}
		if err != nil {
			return fmt.Errorf("settle what is held: %w", err)
		}
		select {
		case <-tick.C:
		case <-over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *storm) settleAll(ctx context.Context, records *semelclient.Client, held []semel.Record, quiet store.Instant) error {
	over := map[semel.ID]bool{}
	for i := range held {
		over[held[i].ID] = s.over(&held[i], quiet)
	}
	if len(held) == 0 {
		return nil
	}
	// What is over has left its trace in the ledger, which is therefore read now.
	ledger, err := s.client.ledger(ctx, s.provider.URL, nil)
	if err != nil {
		return err
	}
	for i := range held {
		settlement, known := s.finding(&held[i], ledger, over[held[i].ID])
		if !known {
			continue
		}
		_, err := records.Settle(ctx, held[i].ID, settlement, "looked up in the ledger of the toy service")
		if e, ok := errors.AsType[*semel.Error](err); ok && (e.Code == semel.CodeIllegalTransition || e.Code == semel.CodeUnknown) {
			continue // it has an outcome meanwhile, or is found again
		}
		if err != nil {
			return err
		}
		s.note(func(r *doorReport) { r.Held++ })
	}
	return nil
}

// over reports whether a held call can't charge any more. What a dead process has sent is
// over since the toy service became quiet. Workers outlive Semel, and say so themselves.
func (s *storm) over(held *semel.Record, quiet store.Instant) bool {
	if w, ok := s.door.(workplace); ok {
		return !w.working(held.ID.Key)
	}
	return held.StartedAt < quiet
}

// finding is what the ledger says of a held call. If it has no charge for a call that isn't
// over, one may come yet, and nothing is known.
func (s *storm) finding(held *semel.Record, ledger []Charge, over bool) (f semel.Settlement, known bool) {
	charges, state := match(ledger, "", held.ID.Key), store.EffectRefuted
	switch {
	case len(charges) > 0:
		f.Outcome, f.Result, state = semel.DispositionCompleted, s.door.result(charges[0]), store.EffectConfirmed
	case over:
		f.Outcome = semel.DispositionAborted
	default:
		return f, false
	}
	for _, ef := range held.Effects {
		if ef.State == store.EffectStarted {
			f.Effects = append(f.Effects, store.EffectFinding{Name: ef.Name, State: state})
		}
	}
	return f, true
}
