// Package pgstore keeps records in PostgreSQL. Any number of processes may use one
// database, and share every record.
//
// What Apply and Purge acknowledged is as durable as the server's settings make a
// commit; [Store.Durability] reads them and says what that means. Writes of
// concurrent callers travel together, in one statement that is one transaction, so
// that they share its costs.
//
// # Cancelled commits
//
// No write is called back. When a caller hangs up, or its time is over, it is told
// so at once, and its batch goes on; the engine finds out later what came of it.
// Where commits wait for a standby, a row may be visible although no standby has
// it: somebody has ended the wait, or the server was restarted. Acting on such a
// row would be wrong, for it is gone after a failover. So every answer that rests
// on a row that was read, a refused write or a Get, comes from a transaction that
// commits something of its own, and waits in its turn.
//
// # What is certain
//
// An error of [Store.Apply] wraps [semel.ErrNotApplied] where nothing of the write was
// sent, and where the server has refused a statement before the commit of its
// transaction: it can't be reached, starts up, has too many connections, only reads,
// has no room, a row is locked or damaged, a time limit is over. It does not where the
// commit fails or a connection breaks over which the write was sent. A write with a
// deadline is refused by the server's clock at the moment when the statement comes to
// its row; what it waits for then, a lock for Options.LockTimeout or the commit, is not
// counted.
//
// # Clock
//
// The store's clock is that of the server. Each process reads it every few seconds
// and carries it on by its own monotonic clock. It takes the server to have looked
// at its clock at the last possible moment, when the answer arrived, so its clock
// is behind the server's, by the time of a round trip at most, and never ahead. So
// a process that starts later never sees an earlier time than another has seen
// before, and nothing has to be stored.
//
// The server's own clock must not go back: a standby that takes over must have the
// right time. Where it does, by more than a tenth of a second, [Store.Now] fails in
// processes that have seen it ahead until it has caught up. A leap of more than a
// second is believed when it was seen twice.
//
// # Sessions
//
// A transaction pooler may stand between: no lock and no setting that matters
// outlives a transaction, and statements are prepared only on connections that lead
// straight to a server. Notices need such a connection; see Options.ListenURL.
//
// # Evidence
//
// The entries of a write are appended by the statement that makes the write, so
// they cost no round trip, and writes without evidence nothing. Whoever reads the
// log numbers them, as [Store.ReadEvidence] says.
package pgstore
