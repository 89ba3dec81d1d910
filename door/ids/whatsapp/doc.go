// Package whatsapp reads commands from WhatsApp messages: it is a webhook for the WhatsApp
// Cloud API in front of a gateway of package ids.
//
// WhatsApp repeats a webhook until it is answered with 200, in batches that may be partly new,
// in any order, and sometimes twice in one second. So there are two levels of deduplication.
// The first is the message: each is accepted once, as a separate call with the phone number's
// id and the message's as its key. The second is the command: the meaning of the message,
// whichever message has it (see package ids).
//
// # Accept first, work later
//
// The webhook only accepts messages (see package inbox). So 200 means that every message of the
// batch is durable, and the answer doesn't wait for commands to run. A dispatcher (package
// dispatch) then passes each message to [Ingress.Work], which asks the mapper for a command and
// executes it.
//
// After a crash before a message is accepted, WhatsApp gets no 200 and delivers again. A crash
// afterwards leaves a message that is due: a dispatcher of any node works on it, perhaps again.
// So the mapper may be asked about a message more than once, though never concurrently; the
// command that it returns is executed once. If it returns another command the second time, the
// gateway refuses that as a conflict.
//
// One bad message doesn't stop the others: each has its own record, and one that can't be
// processed is parked there.
package whatsapp
