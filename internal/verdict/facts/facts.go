// Package facts gathers everything that a store and an evidence log have about calls, for a verdict
// on them.
package facts

import (
	"context"
	"errors"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/conflicts"
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
		all[i] = verdict.Facts{Record: &records[i], Now: now, Harmless: known && !op.Financial, OnFailure: string(op.OnFailure), StepUp: op.Confirmation != nil && op.Confirmation.StepUp != nil}
		if !epoch.IsZero() {
			all[i].Epoch = store.InstantOf(epoch)
		}
	}
	return all, nil
}

// Whole is [Of] with payloads, and with earlier records from the evidence log, which may be nil. If
// the log can't be read, the verdicts say that nobody knows about earlier records.
func Whole(ctx context.Context, engine *semel.Engine, log *evidence.Log, records []semel.Record) ([]verdict.Facts, error) {
	all, err := Of(ctx, engine, records)
	calls := make([]*verdict.Facts, len(all))
	for i := range all {
		calls[i] = &all[i]
		calls[i].Payload = calls[i].Record.Payload
	}
	_ = Earlier(ctx, log, calls...)
	return all, err
}

// Show shows a record of a store that no service has open, with the counts and the refused payloads
// that services left.
func Show(ctx context.Context, engine *semel.Engine, log *evidence.Log, rec *semel.Record) (wire.Record, error) {
	v := wire.RecordOf(rec)
	all, err := Whole(ctx, engine, log, []semel.Record{*rec})
	if err != nil {
		return v, err
	}
	v.Verdict = new(verdict.Of(&all[0]))
	st := engine.Internal().Store()
	if v.Decisions, err = tally.New(st).Of(ctx, rec); err != nil || v.Decisions[semel.Conflict] == 0 {
		return v, err
	}
	return v, Refused(ctx, conflicts.New(st), rec, v.Verdict)
}

// Refused adds to a verdict where refused payloads differ from that of the call.
func Refused(ctx context.Context, index *conflicts.Index, rec *semel.Record, v *verdict.Verdict) error {
	list, err := index.Refused(ctx, rec)
	var payloads [][]byte
	for i := range list {
		payloads = append(payloads, list[i].Payload)
	}
	v.Compare(rec.Payload, payloads)
	return err
}
