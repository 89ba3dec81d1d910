package store

import "context"

// Tx is a transaction of the database that an engine's store keeps its records in, so that a
// record can be written next to the rows of the application and both commit or neither. Stores
// that support it make them; see package pgstore.
type Tx interface {
	// Lock keeps every other transaction from locking the identity until this one ends. It does
	// not wait. boundTo is BoundTo of semel.Call. A transaction's writes can't be seen before
	// it commits, so only the lock can tell a duplicate, which is in flight, from another
	// caller's delivery, for which a record may say more. A second lock of one identity in one
	// transaction is an [Error] with [CodeInvalidCall], because nobody outside can see the
	// first one's writes yet.
	Lock(ctx context.Context, id ID, boundTo string) (TxLock, error)
	// Apply is [Store].Apply as part of the transaction: the write takes effect when the
	// transaction commits, and leaves nothing if it doesn't. If the transaction has ended
	// already, the error is an [Error] with CodeUnknown of package semel.
	Apply(ctx context.Context, w Write) (applied bool, err error)
	// Committed is called once the transaction has committed with a changed record, so that the
	// store can notify others who watch it.
	Committed(id ID)
}

// TxLock is the result of [Tx].Lock.
type TxLock uint8

// The results of [Tx].Lock.
const (
	// TxBusy: another transaction has locked the identity, for a call bound to the same caller,
	// or is about to find out that it can't.
	TxBusy TxLock = iota
	// TxLocked: this transaction has locked it.
	TxLocked
	// TxOther: another transaction has locked it, for a call bound to something else.
	TxOther
)

// OwnTx is a [Tx] that the engine ends itself; see DoTx of semel.Engine.
type OwnTx interface {
	Tx
	// Save sets a savepoint.
	Save(ctx context.Context) error
	// Undo takes back all writes since Save, but releases no lock.
	Undo(ctx context.Context) error
	// Commit commits. Its error means that nothing was committed, unless it has
	// CodeUnknown of package semel. The context has no deadline and is not cancelled.
	Commit(ctx context.Context) error
	// Rollback ends the transaction if Commit was not called.
	Rollback(ctx context.Context)
	// Again reports whether an error, from this transaction's methods or from the handler's
	// work in it, says that others caused a rollback, so that another transaction that does the
	// same may succeed.
	Again(err error) bool
}
