package semel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel/store"
)

// Bounds of what reconcilers of one operation do at a time in one engine.
const (
	// ReconcileLimit is how long a reconciler may take for one question: then its
	// context ends, and a later answer is ignored.
	ReconcileLimit = 30 * time.Second
	// maxReconciling is how many questions may be open at a time. Further held records
	// stay due.
	maxReconciling = 16
)

// reconcile asks the operation's reconciler about a held record, in the background. Of
// all engines that find the record due, only one asks.
func (e *Engine) reconcile(ctx context.Context, op *operation, rec *Record, now store.Instant, n *Swept) error {
	mine, err := op.hold(rec, rec.HeldReason, now)
	if err != nil {
		return err
	}
	mine.NextAt = now.Add(max(op.ReconcileEvery, ReconcileLimit)) // nobody else asks meanwhile
	// A crash before this write leaves the record due. A crash after it leaves
	// it held, to be asked about again after the usual pause.
	asked, err := e.goOn(ctx, n, op.asking, op, rec, mine, func(ctx context.Context) {
		began := time.Now()
		err := guarded("the reconciler", func() error { return e.ask(ctx, op, mine) })
		if e.events.Reconciled != nil {
			e.events.Reconciled(Event{ID: mine.ID, Took: time.Since(began), Err: err})
		}
	})
	if asked {
		n.Reconciled++
	}
	return err
}

// ask calls the reconciler and records its answer, but only if the record hasn't changed
// since the call: a later change has newer information.
func (e *Engine) ask(ctx context.Context, op *operation, held *Record) error {
	limited, cancel := context.WithTimeout(ctx, ReconcileLimit)
	defer cancel()
	s, err := op.Reconcile(limited, *held)
	if limited.Err() != nil {
		// Another engine may have asked again already, and have a newer answer.
		return errors.Join(fmt.Errorf("semel: the reconciler took more than %v", ReconcileLimit), err)
	}
	if err != nil || s.isZero() {
		if op.ReconcileEvery >= ReconcileLimit {
			return err // it stays held, and is asked about again
		}
		s = Settlement{RetryAfter: op.ReconcileEvery}
	}
	_, serr := e.settle(ctx, op, held, s, store.Settled{By: store.ByReconciler, Who: s.Who})
	if errors.Is(serr, &Error{Code: CodeIllegalTransition}) {
		serr = nil // settled by another in the meantime
	}
	return errors.Join(err, serr)
}
