// Package dispatch delivers the messages that completed calls send: a transactional
// outbox with a single dispatcher (IDS-XI.S2).
//
// A message is part of the record of its call, written in the same step as the
// outcome. So it exists if and only if the call completed. A [Dispatcher] delivers
// it at least once, always under the same id, by which the receiver deduplicates.
// Nothing can promise that it arrives exactly once: a crash between the delivery and
// the note of it can't be told from a crash before the delivery.
//
// Each message is delivered as a call of its own through the engine: operation
// "semel.dispatch/" and the destination, the message's id as key, the tenant of the
// record. The lease of that call makes one dispatcher at a time deliver it, on any
// number of nodes and on every store, as far as leases can: one that was paused
// for longer than its lease may still send. Its outcome is then settled on the
// record by [semel.Engine.SettleMessage].
//
// A crash leaves:
//
//   - before the claim: the message as it was. It is due and found by the next scan.
//   - between the claim and its end: a lease that ends. Then the message is sent
//     again, under the same id.
//   - between the end of the delivery and the note on the record: a call whose
//     outcome is replayed, so that only the note is made up for.
//   - after the note: nothing to do.
//
// # Order
//
// Messages of one tenant and destination with the same [semel.Message.Order] are
// delivered one after the other, in the order in which their calls completed by the
// store's clock. See lane.go for how that order is found. What was parked or
// discarded lets those behind it pass; what is replayed goes to the end of the line.
// Order needs a [semel.DueStore], and nothing else than leases between two
// dispatchers. Calls that complete at the same time have no order.
package dispatch
