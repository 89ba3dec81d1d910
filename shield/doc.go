// Package shield keeps the external effects of calls single, from every door: an
// HTTP request to a provider that carries a derived key (S1), that is in the effect
// ledger before its first byte leaves (S3), and about which the provider can be asked
// afterwards (S4). Messages of the outbox (S2) are semel.Send and package dispatch.
//
// What is enforced, and where:
//
//   - An operation of class I3 names at least one shield, with S3 it declares its
//     Effects, and with S4 it has a Reconcile; others are refused when they are
//     registered (IDS-XI.1).
//   - An effect that the operation does not declare can't begin: nothing is sent.
//   - [KeyTransport] refuses requests that change something and have no key.
//   - [Client] sends a request once, and only while the attempt holds its lease.
//   - A reconciler asks by methods without effects, and does not believe that nothing
//     happened before the request had time to arrive.
//
// What can't be enforced: a handler that calls a provider without any of this. Nobody
// sees it. So an operation that declares Effects promises that there is no such call.
package shield
