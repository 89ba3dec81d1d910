package store

import "context"

// Tx is a transaction of the database that an engine's store keeps its records in,
// so that a record can be written next to the rows of the application and both
// commit or neither. A store that can do this makes them; see package pgstore.
type Tx interface {
	// Lock keeps every other transaction from locking the identity until this one
	// ends. It does not wait. boundTo is BoundTo of semel.Call. A transaction's writes can't
	// be seen before it commits, so the lock itself tells a duplicate, which is in flight,
	// from another caller's delivery, and for that one a record may say more. A second lock of
	// one identity in one transaction is an [Error] with [CodeInvalidCall], because nobody
	// outside can see the first one's writes yet.
	Lock(ctx context.Context, id ID, boundTo string) (TxLock, error)
	// Apply is Apply of a [Store] as a part of the transaction: it holds once that has
	// committed, and leaves nothing when it has not. Where the transaction was
	// ended already, it is an [Error] with CodeUnknown of package semel.
	Apply(ctx context.Context, w Write) (applied bool, err error)
	// Committed is called once the transaction has committed with a changed
	// record, so that others who watch it can be told.
	Committed(id ID)
}

// TxLock is what [Tx].Lock got.
type TxLock uint8

// The answers of [Tx].Lock.
const (
	// TxBusy: another transaction has the identity, for a call that is bound to the
	// same, or is about to find out that it can't have it.
	TxBusy TxLock = iota
	// TxLocked: this transaction has it.
	TxLocked
	// TxOther: another transaction has it, for a call that is bound to something else.
	TxOther
)

// OwnTx is a [Tx] that the engine ends itself; see DoTx of semel.Engine.
type OwnTx interface {
	Tx
	// Save marks a point.
	Save(ctx context.Context) error
	// Undo takes back all writes since Save, but no lock.
	Undo(ctx context.Context) error
	// Commit commits. Its error means that nothing was committed, unless it has
	// CodeUnknown of package semel. The context has no deadline and is not cancelled.
	Commit(ctx context.Context) error
	// Rollback ends the transaction if Commit was not called.
	Rollback(ctx context.Context)
	// Again reports whether an error, of this transaction's methods or of what the
	// handler did in it, says that it was rolled back because of others, and that
	// another one that does the same may succeed.
	Again(err error) bool
}
