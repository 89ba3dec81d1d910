// Package pgstore keeps records in PostgreSQL. Any number of processes may use one database,
// and share every record.
//
// Acknowledged writes are as durable as the server's settings make a commit; [Store.Durability]
// reads them and tells you what they mean. Writes of concurrent callers share a statement and
// its commit (group commit). ADR 18 says how, and lists the invariants that this rests on.
//
// # Cancelled commits
//
// The store never asks the server to cancel a write. If a caller hangs up, or runs out of time,
// its call returns at once and the batch continues; the engine finds out the result later. If
// commits wait for a standby, the server may show a row that no standby has, because somebody
// ended the wait or the server was restarted. Acting on such a row would be wrong, because a
// failover loses it. So every answer that depends on a row that was read, a refused write or a
// Get, comes from a transaction that commits something of its own, and so waits, too.
//
// # What is certain
//
// An error of [Store.Apply] wraps [store.ErrNotApplied] if nothing of the write was sent, or if
// the server refused a statement before the commit: it can't be reached, is starting up, has
// too many connections, only reads, is out of space, a row is locked or damaged, a time limit
// is over. It doesn't if the commit fails, or if the connection breaks after the write was
// sent. The server compares a write's deadline with its clock when the statement comes to the
// row; later waits, for a lock up to Options.LockTimeout or for the commit, don't count.
//
// The server's clock must not go back: a standby that takes over must have the right time. ADR 14
// says what happens otherwise.
//
// # Sessions
//
// You may put a transaction pooler in between: no lock and no setting that matters outlives a
// transaction, and statements are prepared only on connections that lead straight to a server.
// Notices need such a connection; see Options.ListenURL.
package pgstore
