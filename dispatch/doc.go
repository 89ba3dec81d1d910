// Package dispatch delivers the messages that completed calls send: a transactional
// outbox with a single dispatcher (IDS-XI.S2).
//
// A message is part of the record of its call, written in the same step as the
// outcome. So it exists if and only if the call completed. A [Dispatcher] delivers
// it at least once, always under the same id, so that the receiver can deduplicate. Exactly
// once is impossible: after a crash, nobody can tell whether it came before the delivery or
// between the delivery and its record.
//
// Each message is delivered as a separate call through the engine: operation
// "semel.dispatch/" and the destination, the message's id as key, the tenant of the
// record. The lease of that call lets only one dispatcher at a time deliver it, on any
// number of nodes and on every store, except that one that was paused for longer than
// its lease may still send. The result is then settled on the record by
// [semel.Internal.SettleMessage].
//
// A crash leaves:
//
//   - before the claim: the message as it was. It is due, and the next scan finds it.
//   - between the claim and its end: a lease that ends. Then the message is sent
//     again, under the same id.
//   - between the end of the delivery and its settlement on the record: a call with an
//     outcome. It is replayed, so the message isn't sent again and only settled.
//   - after the settlement: nothing to do.
//
// # Order
//
// Messages of one tenant and destination with the same Order (see [semel.Message]) are
// delivered one after the other, in the order in which their calls completed by the
// store's clock. lane.go explains how that order is found. A parked or discarded message
// lets those behind it pass; a replayed one goes to the end of the queue. Order needs a
// [store.DueIndex]; between two dispatchers it needs only leases. Calls that complete at
// the same time have no order.
package dispatch
