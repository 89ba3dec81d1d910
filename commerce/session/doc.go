// Package session gives a user one active session on each device, however often and from
// wherever they log in at the same time (MAP-SESS.1, MAP-SESS.3).
//
// A session is a record of the engine: its key is session:{user}:{device}, its window is
// the lifetime of the session, and its result is the token, encrypted. A login while the
// session is active is a duplicate and gets the stored token, byte for byte. A session is
// active until it has expired or [Manager.End] has ended it. The next login makes a new one.
//
// Every login checks the user's proof, such as a password, before it looks up or writes
// anything. The proof reaches neither the fingerprint nor the store.
//
// # What a crash leaves behind
//
// A crash before the claim, while checking the proof, leaves nothing. A crash while making the
// token leaves a lease: logins of the same device wait for its end, up to [Options].Lease, and
// one of them makes the token again. That is safe, because a token that nobody got is worth
// nothing: making one may have no other effect, and the package declares this to the engine. A
// crash after the outcome was written leaves an active session, and the next login gets its
// token. Nobody has to clean up; the engine's sweeps purge expired sessions.
package session
