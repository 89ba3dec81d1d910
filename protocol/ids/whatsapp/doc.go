// Package whatsapp takes commands out of WhatsApp messages: it is the webhook of the
// WhatsApp Cloud API in front of a gateway of package ids.
//
// WhatsApp delivers a webhook again until it is answered with 200, in batches that
// may be partly new, in no order, and sometimes twice in one second. So there are two
// levels of deduplication. The first is the message: each is taken once, as a call of
// its own whose key is the phone number's id and the message's. The second is the
// command: what the message means, and not which message it was (see package ids).
//
// # Take first, work later
//
// The webhook only takes messages. Taking one is an attempt that sends the message to
// the outbox of its own record and completes, so 200 says that every message of the
// batch is durable, and how long a command runs has nothing to do with the time that
// WhatsApp waits for its answer. A dispatcher (package dispatch) then brings each
// message to [Ingress.Work], which asks the mapper what it means, and executes that.
//
// A crash before a message is taken leaves WhatsApp without its 200, and it delivers
// again. A crash afterwards leaves a message that is due: a dispatcher of any node
// works on it, again perhaps. The mapper may thus be asked about one message more
// than once, though never by two at a time; the command that it names is executed
// once. A mapper that names another command the second time is found out: the gateway
// refuses that as a conflict.
//
// One bad message does not stop the others: each has its own record, and one that
// can't be worked on is parked there.
package whatsapp
