package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
)

// ownTx is a [semel.OwnTx].
type ownTx struct {
	joined
	handle pgx.Tx // what the handler gets; nil by database/sql
	sent   bool   // the commit
}

const savepoint = "semel_call"

// Save is [semel.OwnTx.Save].
func (t *ownTx) Save(ctx context.Context) error { return t.link.exec(ctx, "SAVEPOINT "+savepoint) }

// Undo is [semel.OwnTx.Undo].
func (t *ownTx) Undo(ctx context.Context) error {
	return t.link.exec(ctx, "ROLLBACK TO SAVEPOINT "+savepoint)
}

// Rollback is [semel.OwnTx.Rollback].
func (t *ownTx) Rollback(ctx context.Context) {
	if !t.sent {
		t.link.rollback(ctx)
	}
}

// errRolledBack marks that a transaction has left nothing and may be run again.
var errRolledBack = errors.New("the transaction was rolled back")

// Again is [semel.OwnTx.Again].
func (t *ownTx) Again(err error) bool {
	state := sqlState(err)
	return state == "40001" || state == "40P01" || errors.Is(err, errRolledBack)
}

// Commit is [semel.OwnTx.Commit].
//
// A crash of this process or a lost connection before it leaves nothing: the server
// rolls back. After it the outcome is there, and so is what it is the outcome of.
// Where it was sent and not answered, the server is asked which it was.
func (t *ownTx) Commit(ctx context.Context) error {
	t.sent = true
	err := t.link.commit(ctx)
	if err == nil {
		return nil
	}
	if refusedCommit(err) {
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

// refusedCommit reports an error of COMMIT with which the server says that it has
// rolled back: a check that was put off until then failed.
func refusedCommit(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	state := sqlState(err)
	return len(state) == 5 && state != "40003" && slices.Contains([]string{"23", "25", "40", "44", "P0"}, state[:2])
}

// resolveFor is how long the fate of a commit is asked for.
const resolveFor = 5 * time.Second

// resolve finds out whether the transaction has committed. The server may still be
// at it, and then the record that it shows proves nothing. But the transaction's lock
// is there until it has ended one way or the other, so whoever gets that reads the
// end of it.
func (t *ownTx) resolve(ctx context.Context) (committed bool, err error) {
	if t.wrote == nil {
		return false, errors.New("nothing was recorded that tells")
	}
	ctx, cancel := context.WithTimeout(ctx, resolveFor)
	defer cancel()
	d := digest(t.wrote.ID.Digest())
	for n := 1; ; n++ {
		var free bool
		if free, err = t.store.lockIsFree(ctx, &d); err == nil && free {
			var rec semel.Record
			if rec, err = t.store.Get(ctx, t.wrote.ID); errors.Is(err, semel.ErrNotFound) {
				return false, nil
			}
			if err == nil {
				return leftIn(t.wrote, &rec), nil
			}
		}
		timer := time.NewTimer(min(time.Duration(n)*5*time.Millisecond, 200*time.Millisecond))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, errors.Join(ctx.Err(), err)
		case <-timer.C:
		}
	}
}

// leftIn reports whether a written record is the stored one, or what that came of.
func leftIn(wrote, stored *semel.Record) bool {
	return stored.Revision == wrote.Revision || slices.ContainsFunc(stored.Earlier, func(a semel.AttemptRecord) bool {
		return a.Fence == wrote.Fence && a.StartedAt == wrote.StartedAt
	})
}

// lockIsFree reports whether no transaction has the lock of an identity.
func (s *Store) lockIsFree(ctx context.Context, d *digest) (free bool, err error) {
	st := newRareStatement("SELECT pg_try_advisory_xact_lock($1::bigint)", int8Value(lockKey(s.opts.Schema, d)))
	err = s.query(ctx, st, func(row [][]byte) error {
		free = len(row) == 1 && len(row[0]) == 1 && row[0][0] == 1
		return nil
	})
	return free, err
}
