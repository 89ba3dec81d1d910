// Package shield keeps external effects of calls from being repeated. It makes HTTP
// requests to providers that carry a derived key (S1) and are in the effect ledger before
// their first byte leaves (S3), and asks providers about them afterwards (S4). It works
// behind every door. For messages in the outbox (S2) see semel.Send and package dispatch.
//
// These rules are enforced:
//
//   - An operation of class I3 names at least one shield; with S3 it declares its
//     Effects, and with S4 it has a Reconcile. Others are refused when they are
//     registered (IDS-XI.1).
//   - An effect that the operation doesn't declare can't begin: nothing is sent.
//   - [KeyTransport] refuses requests that change something and have no key.
//   - [Client] sends a request once, and only while the attempt holds its lease.
//   - A reconciler asks by methods without effects, and ignores the answer that nothing
//     happened until the request has had time to arrive.
//
// This package can't stop a handler from calling a provider without it. So when you
// declare Effects, you promise that there is no such call.
package shield
