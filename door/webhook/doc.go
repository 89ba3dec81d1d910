// Package webhook receives webhooks: HTTP requests in which another company says that something
// happened. It repeats each until it gets a 2xx answer.
//
// Senders differ only in data: a [Source] says where to find the signature and which bytes it
// signs, where to find an event's id, and how long the sender repeats deliveries. Many are
// built in, see [Sources]; you can declare others in a short YAML file, see [Load].
//
// A [Receiver] verifies the received bytes of a delivery before it parses or stores anything.
// It splits a batch into its events, and makes each a call of its own: sender, id and scope are
// the identity. So each event is handled once, however often and in whatever batches it
// arrives. The same id with another content is a conflict: it is parked for an operator, in a
// record of its own, and the evidence log has the digests of both.
//
// # Acknowledge first, or ask first
//
// With [Ack], an event is an attempt that sends the event to the outbox of its own record and
// completes. So 2xx means that every event of the delivery is durable, and the sender doesn't
// wait for your handler. A dispatcher (package dispatch) then passes the events to
// [Receiver.Work]. After a crash before an event is accepted, the sender gets no 2xx and
// delivers again. A crash afterwards leaves a message that is due: a dispatcher of any node
// works on it, perhaps again, under the same [Event].ID.
//
// With [Sync], your handler runs while the sender waits, and its error makes the sender deliver
// again. If the sender hangs up, the handler still finishes, and the next delivery gets its
// outcome.
package webhook
