package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/store"
)

// ownTx is a [store.OwnTx].
type ownTx struct {
	joined
	handle any  // passed to the handler
	sent   bool // the commit
}

// Save is [store.OwnTx.Save].
func (t *ownTx) Save(ctx context.Context) error { return t.link.exec(ctx, "SAVEPOINT semel_call") }

// Undo is [store.OwnTx.Undo].
func (t *ownTx) Undo(ctx context.Context) error {
	return t.link.exec(ctx, "ROLLBACK TO SAVEPOINT semel_call")
}

// Rollback is [store.OwnTx.Rollback]. If it fails, the transaction ends with its connection
// instead.
func (t *ownTx) Rollback(ctx context.Context) {
	if !t.sent {
		_ = t.link.rollback(ctx)
	}
}

// errRolledBack marks that a transaction left nothing and can be run again.
var errRolledBack = errors.New("the transaction was rolled back")

// Again is [store.OwnTx.Again].
func (t *ownTx) Again(err error) bool {
	return rolledBackByOthers(err) || errors.Is(err, errRolledBack)
}

// Commit is [store.OwnTx.Commit].
//
// If this process crashes or the connection breaks before it, the server rolls everything back.
// After it, both the outcome and the work are stored. If no answer comes, Commit asks the
// server which it was.
func (t *ownTx) Commit(ctx context.Context) error {
	t.sent = true
	err := t.link.commit(ctx)
	switch {
	case err == nil:
		return nil
	case refusedCommit(err):
		return &semel.Error{Code: semel.CodeStoreUnavailable, Message: "the commit was refused, and everything was rolled back", Err: err}
	}
	committed, rerr := t.resolve(ctx)
	switch {
	case rerr != nil:
		return &semel.Error{Code: semel.CodeUnknown, Message: "the commit was not answered", Err: errors.Join(err, rerr)}
	case !committed:
		return fmt.Errorf("%w: %w", errRolledBack, err)
	}
	return nil
}

// refusedCommit reports whether COMMIT was rolled back, for example by a deferred constraint.
func refusedCommit(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	state := sqlState(err)
	return len(state) == 5 && state != "40003" && slices.Contains([]string{"23", "25", "40", "44", "P0"}, state[:2])
}

// resolveFor is how long Commit tries to find out the result of an unanswered commit.
const resolveFor = 5 * time.Second

// resolve finds out whether the transaction has committed. While the server is still working on
// it, the record that it shows proves nothing. But the transaction holds its lock until it has
// ended one way or the other, so once the lock is free the record shows which.
func (t *ownTx) resolve(ctx context.Context) (committed bool, err error) {
	if t.wrote == nil {
		return false, errors.New("no record was written that would tell")
	}
	ctx, cancel := context.WithTimeout(ctx, resolveFor)
	defer cancel()
	d := digest(t.wrote.ID.Digest())
	lock := lockKey(t.store.opts.Schema, &d)
	for n := 1; ; n++ {
		var free bool
		if free, err = one(query(ctx, t.store, func(v values) (bool, error) { return v.bool(0), nil }, newStatement("SELECT pg_try_advisory_xact_lock($1::bigint)", bigint(lock)))); err == nil && free {
			var rec *semel.Record
			if rec, err = t.store.Get(ctx, t.wrote.ID); errors.Is(err, semel.ErrNotFound) {
				return false, nil
			}
			if err == nil {
				return leftIn(t.wrote, rec), nil
			}
		}
		if !callctx.Pause(ctx, min(time.Duration(n)*5*time.Millisecond, 200*time.Millisecond)) {
			return false, errors.Join(ctx.Err(), err)
		}
	}
}

// leftIn reports whether a transaction's write is stored, or was until something followed it,
// such as a settled message or a further attempt.
func leftIn(wrote, stored *semel.Record) bool {
	return stored.Revision == wrote.Revision ||
		stored.Fence == wrote.Fence && stored.StartedAt == wrote.StartedAt && stored.Holder == wrote.Holder ||
		slices.ContainsFunc(stored.Earlier, func(a store.AttemptRecord) bool {
			return a.Fence == wrote.Fence && a.StartedAt == wrote.StartedAt
		})
}
