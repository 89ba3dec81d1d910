// Package datasync keeps the data of two systems equal while both change it, over
// deliveries that may arrive twice, late or in any order.
//
// A [Replica] stands at each of the two sides. It has the state of every entity, in one
// small value of the store that changes by compare-and-set ([store.Cell]). Your program
// changes an entity by [Replica.Put], and hands what arrives from the other side to
// [Replica.Receive]. A dispatcher (package dispatch) passes the messages of
// [Replica.Destination] to [Replica.Work], which writes each new state to your database
// by [Options].Apply, and sends your own changes to the other side by [Options].Send.
//
// # How entities are merged
//
// [LastWriteWins] is for data that is edited, such as a user (MAP-SYNC.1). The state is
// the change with the latest time. Of two changes with one time the higher version wins,
// then the origin that sorts last, then the content with the SHA-256 that sorts last, over its
// canonical form (RFC 8785). So all changes have one order, and both sides choose the same
// whatever the order of arrival (MAP-SYNC.5). Whoever edits names the version that they make,
// one above the version that they read (optimistic locking); a Put of another version is
// refused.
//
// [AppendOnly] is for data that only grows: the history of a user's consents, where each
// version is an entry (MAP-SYNC.2), and snapshots of products, where an order refers to one
// version (MAP-SYNC.3). The first content of a version never changes. The same content again
// is a duplicate. Both sides store other content beside the first until somebody decides; they
// add a further version that says how.
//
// A change names the side that it comes from. One that comes back is neither applied nor
// sent again (MAP-SYNC.4).
//
// # What is promised
//
// A state and the message about it are written in one step, so no change is lost in a
// crash. Each message is a call of the engine, so one dispatcher at a time works on it,
// and each state is applied once. After a crash it may be applied again, because only the
// store itself can be written in the same step: let Apply write only if your database has a
// lower [State].Sequence. A state that a later one has replaced before it was applied isn't
// applied. The other side gets each change at least once, and recognises it.
//
// Both sides end equal if all messages arrive in the end. That includes changes that the other
// side refuses: they stay with the dispatcher as dead letters.
//
// # What a crash leaves behind
//
// A crash before a state is written leaves nothing, and a caller without an answer, who
// asks again: a repeated Put or Receive is recognised. A crash after it leaves a message that
// is due. A crash while the state is applied or sent leaves a lease; when it ends, any node
// does both again. Nobody has to clean up. States stay for ever, because an older change could
// replace a forgotten one.
package datasync
