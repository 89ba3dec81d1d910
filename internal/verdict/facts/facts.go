// Package facts gathers everything that a store and an evidence log have about calls, for a verdict
// on them.
package facts

import (
	"context"
	"errors"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/tally"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// Of returns what an engine and its store know about records. It leaves out payloads: not
// everybody who may see a call may see its request.
func Of(ctx context.Context, engine *semel.Engine, records []semel.Record) ([]verdict.Facts, error) {
	in := engine.Internal()
	now, err := in.Store().Now(ctx)
	epoch, eerr := in.LoadEpoch(ctx)
	if err := errors.Join(err, eerr); err != nil {
		return nil, err
	}
	all := make([]verdict.Facts, len(records))
	for i := range records {
		op, known := in.Operation(records[i].ID.Operation)
		all[i] = verdict.Facts{Record: &records[i], Now: now, Harmless: known && !op.Financial}
		if !epoch.IsZero() {
			all[i].Epoch = store.InstantOf(epoch)
		}
	}
	return all, nil
}

// Show shows a record of a store that no service has open: with the counts that services left,
// and with a verdict that knows no evidence log.
func Show(ctx context.Context, engine *semel.Engine, rec *semel.Record) (wire.Record, error) {
	v := wire.RecordOf(rec)
	all, err := Of(ctx, engine, []semel.Record{*rec})
	if err != nil {
		return v, err
	}
	v.Verdict = new(verdict.Of(&all[0]))
	v.Decisions, err = tally.New(engine.Internal().Store()).Of(ctx, rec)
	return v, err
}
