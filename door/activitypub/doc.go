// Package activitypub receives activities: the requests in which one server of the
// fediverse tells another what its actors did. It repeats each until it gets a 2xx
// answer. Some senders deliver the same bytes again at once, signed in another way,
// whatever the error was.
//
// An [Inbox] serves the inboxes of a server's actors, and the inbox that they share. The
// identity of an activity is its id: one record holds what came first under it, and one for
// each inbox that the activity is in it. However often it arrives, and by whichever of the
// two ways, it is handled once for each actor. 202 means that the activity is in the store.
// A dispatcher (package dispatch) then passes it to [Inbox.Work], so no sender waits for
// your handler.
//
// HTTP signatures identify senders (package httpsig). An activity is accepted
// from the server of its actor only, and only with an id of that server, so nobody can use
// up an id of somebody else; an id without a host counts within its actor. The same id from
// another server, or with other content, to whichever inbox, gets 202 too, because the
// sender could do nothing about an error but try again; it is never handled, it is logged
// as a warning, and the evidence log has the digests of both.
//
// A crash before an activity is accepted leaves its sender without a 202, and it delivers
// again. A crash afterwards leaves a message that is due: a dispatcher of any node works
// on it, perhaps again, under the same [Activity].Delivery. That is why a handler looks at
// the state of things first; [Step] and [Creation] are for that.
package activitypub
