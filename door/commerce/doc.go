// Package commerce offers the patterns of the idempotency map over HTTP, to back ends in any
// language: sessions, mandates of carts and intents, payments, and entities that two systems
// share. It decides nothing. Packages commerce, commerce/session and commerce/datasync do,
// over one engine, so a Go program on the same store has the same sessions and mandates.
//
// Callers are verified. A caller is the user that their credential names; one with the right
// [RightUsers], such as a back end, may also name any user of their tenant. docs/commerce.md lists the requests.
//
// Refusals are problem documents (RFC 9457) with the codes of package door.
package commerce
