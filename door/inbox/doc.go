// Package inbox accepts items from senders that repeat a delivery until it is acknowledged:
// each item once, to be handled later. Webhooks, ActivityPub and messages from WhatsApp share
// it; each door adds its protocol.
//
// [Inbox.Accept] makes an item durable: an attempt puts the item into the outbox of its own
// record and completes. So it has no external effect, and the sender doesn't wait for your
// handler. A dispatcher (package dispatch) then passes the message to [Inbox.Work], which hands
// the item to the handler.
//
// The same key with other content is a conflict. It is never handled by itself: the item is
// parked for an operator, in a record of its own, or dropped; see [AfterConflict]. The evidence
// log has the digests of both.
//
// # What a crash leaves behind
//
// A crash before the outcome of the attempt is written leaves a lease that soon ends, and a
// sender that isn't acknowledged and delivers again. A crash afterwards leaves a message in the
// outbox, and the sender's next delivery is a duplicate. A crash while the item is handled
// leaves the message due: a dispatcher of any node works on it again, under the same [Item].ID.
package inbox
