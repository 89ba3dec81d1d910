// Package activitypub receives activities: the requests with which one server of the fediverse
// tells another what its actors did, repeated until it gets a 2xx answer. Some senders deliver
// the same bytes again at once, signed in another way, whatever the error was.
//
// An [Inbox] serves the inboxes of a server's actors, and the inbox that they share. The
// identity of an activity is its id: one record holds the first content under it, and another
// record exists for each inbox that has the activity. However often it arrives, and by either
// way, it is handled once for each actor. 202 means that the activity is in the store. A
// dispatcher (package dispatch) then passes it to [Inbox.Work], so no sender waits for your
// handler.
//
// HTTP signatures identify senders (package httpsig). The inbox accepts an activity only from
// its actor's server, and only with an id of that server, so nobody can use up somebody else's
// id; an id without a host counts within its actor. The same id from another server, or with
// other content, in any inbox, also gets 202, because all a sender could do about an error is
// try again; it is never handled, it is logged as a warning, and the evidence log has both
// digests.
//
// A crash before an activity is accepted leaves its sender without a 202, and it delivers
// again. A crash afterwards leaves a message that is due: a dispatcher of any node works on it,
// perhaps again, under the same [Activity].Delivery. That is why a handler looks at the current
// state first; use [Step] and [Creation] for that.
package activitypub
