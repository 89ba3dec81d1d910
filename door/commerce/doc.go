// Package commerce offers the patterns of the idempotency map over HTTP, to back ends in any
// language: sessions, mandates of carts and intents, payments, and entities that two systems share.
// All decisions are made by packages commerce, commerce/session and commerce/datasync, over one
// engine, so a Go program on the same store has the same sessions and mandates.
//
// Callers are verified. A caller is the user in their credential; with the right [RightUsers] a
// caller, such as a back end, may also name any user of their tenant. docs/commerce.md lists the
// requests.
//
// Refusals are problem documents (RFC 9457) with the codes of package door.
package commerce
