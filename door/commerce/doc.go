// Package commerce offers the patterns of the idempotency map over HTTP, to back ends in any
// language: sessions, mandates of carts and intents, payments, and entities that two systems
// share. It decides nothing. Packages commerce, commerce/session and commerce/datasync do,
// over one engine, so a Go program on the same store has the same sessions and mandates.
//
// Callers are verified. A caller is the user that their credential names; one with the right
// [RightUsers], such as a back end, may also name any user of their tenant:
//
//	POST   {path}/sessions                      begin a session, or get the active one
//	GET    {path}/sessions                      list the user's, without tokens
//	GET    {path}/sessions/{id}                 get one that is active
//	DELETE {path}/sessions/{id}                 end it
//	POST   {path}/mandates                      make a mandate, or get the identical one
//	GET    {path}/mandates/{id}                 get it
//	DELETE {path}/mandates/{id}                 end it before its time
//	POST   {path}/payments                      pay once
//	GET    {path}/payments/{id}                 the state of a payment
//	POST   {path}/payments/{id}/reconcile       settle one that is held
//	PUT    {path}/entities/{entity}/{id}        make the next version
//	GET    {path}/entities/{entity}/{id}        read it, or one version of it
//	POST   {path}/entities/{entity}/changes     take a change from the other side
//
// Refusals are problem documents (RFC 9457) with the codes of package door.
package commerce
