package semel

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/semelhq/semel/internal/engine/erasure"
	"github.com/semelhq/semel/store"
)

// erasedID is the cell that lists recent erasures, so that every engine on the store reports
// them to its program.
var erasedID = ID{Operation: reservedPrefix + "erased", Key: "erased"}

const (
	// erasedPause is how often Run reads the list. People wait for an erasure to take effect.
	erasedPause = 2 * time.Second
	// erasedLate is how long after an erasure a program may still note an earlier decision.
	erasedLate = 10 * time.Second
)

// eraseRecord erases everything that names an identity, except its record.
func (e *Engine) eraseRecord(ctx context.Context, rec *Record) error {
	if e.extras.Evidence != nil && e.opts.Witness != nil {
		if _, err := e.opts.Witness.EraseRecord(ctx, rec.ID); err != nil {
			return e.storeError(ctx, "erase evidence", rec.ID, err)
		}
	}
	if name := rec.Attributes[store.AttributePayment]; name != "" {
		if err := e.erasePayment(ctx, rec, store.PaymentOf(rec.ID.Tenant, name)); err != nil {
			return err
		}
	}
	return e.declareErased(ctx, rec.ID)
}

// erasePayment removes an event's decision from the state of its payment, and deletes the
// state after its last event.
func (e *Engine) erasePayment(ctx context.Context, rec *Record, payment ID) error {
	call, cancel := e.limited(ctx)
	defer cancel()
	now, err := e.now(call)
	if err != nil {
		return err
	}
	event := store.EventOf(rec.ID)
	err = store.NewCell(e.store, payment).Change(call, func(old store.CellValue) (v store.CellValue, err error) {
		if v.Data, err = erasure.WithoutEvent(old.Data, event); err != nil {
			return v, err
		}
		// A crash from here on leaves the record: whoever was interrupted erases it again, and
		// until then the event is refused. Nobody applies it between these writes.
		if err := e.declareErased(call, ID{Tenant: payment.Tenant, Operation: payment.Operation, Key: event}); err != nil {
			return v, err
		}
		if v.Data == nil {
			return v, e.declareErased(call, payment)
		}
		v.KeepFor = max(old.KeepFor-now.Sub(old.At), time.Second) // as long as it would have been kept
		return v, nil
	})
	if errors.Is(err, erasure.ErrNotInPayment) {
		return nil
	}
	return err
}

// Erased reports whether one of these identities was erased in the last 31 days, by an engine that
// had this one's secret or none.
func (in Internal) Erased(ctx context.Context, ids ...ID) (bool, error) {
	e := in.engine
	call, cancel := e.limited(ctx)
	defer cancel()
	v, err := store.NewCell(e.store, erasedID).Load(call)
	if err != nil || v.Data == nil {
		return false, err
	}
	l, err := erasure.Parse(v.Data)
	if err != nil {
		return false, err
	}
	now, err := e.now(call)
	return slices.ContainsFunc(ids, func(id ID) bool { return l.Lists(e.blind(), id, now) }), err
}

// blind returns the function that digests identities with the evidence log's secret, or nil if
// this program doesn't have it.
func (e *Engine) blind() erasure.Blind {
	if e.opts.Witness == nil {
		return nil
	}
	return e.opts.Witness.Subject
}

// declareErased lists an identity as erased.
func (e *Engine) declareErased(ctx context.Context, id ID) error {
	call, cancel := e.limited(ctx)
	defer cancel()
	now, err := e.now(call)
	if err != nil {
		return err
	}
	return store.NewCell(e.store, erasedID).Change(call, func(old store.CellValue) (store.CellValue, error) {
		l, err := erasure.Parse(old.Data)
		l.Add(e.blind(), id, now)
		// A crash before this write leaves the record, and so does one after it: whoever was
		// interrupted erases it again.
		return store.CellValue{Data: l.Encode(), KeepFor: erasure.For}, err
	})
}

// canErase reports why this program can't erase what the evidence log says, or nil. Without a
// log there is nothing to erase.
func (e *Engine) canErase(ctx context.Context) error {
	es := e.extras.Evidence
	if es == nil || e.opts.Witness != nil {
		return nil
	}
	call, cancel := e.limited(ctx)
	defer cancel()
	entries, err := es.ReadEvidence(call, 0, 1)
	if err != nil {
		return e.storeError(ctx, "read evidence", ID{}, err)
	}
	if len(entries) > 0 {
		return &Error{Code: CodeUnsupported, Message: "evidence can't be erased here: this program doesn't write the evidence log"}
	}
	return nil
}

// tellErased calls Events.Erased if something was erased lately or since the list was read last.
// After an error it is read again soon.
func (e *Engine) tellErased(ctx context.Context) {
	if e.events.Erased == nil {
		return
	}
	call, cancel := e.limited(ctx)
	defer cancel()
	now, err := e.now(call)
	if err != nil {
		return
	}
	v, err := store.NewCell(e.store, erasedID).Load(call)
	if err != nil {
		return
	}
	read := store.Instant(e.erasedRead.Swap(int64(now)))
	if v.Revision.IsZero() || v.At.Add(erasedLate) < read {
		return
	}
	l, err := erasure.Parse(v.Data)
	if err != nil {
		l.Missing = v.At // a newer program's
	}
	e.events.Erased(Erased{At: v.At.Time(), Includes: l.Includes(e.blind(), read)})
}
