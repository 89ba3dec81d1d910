// Package semelproxy protects an existing HTTP service without changing it, as a reverse proxy
// in front of it. A [Proxy] is one route to one upstream:
//
//	p, err := semelproxy.New(guard, semelproxy.Options{
//		Upstream: upstream,
//		Route:    semelhttp.Route{Operation: semel.Operation{Name: "payments.charge"}},
//	})
//	mux.Handle("/charges", p)
//	listener = semelproxy.Strict(server, listener)
//	err = server.Serve(listener)
//
// Deliveries get the same as in package semelhttp; the upstream is the handler.
//
// # The outcome of a request
//
// The call to the upstream has its own deadline, Route.Timeout, and doesn't end with the
// client's connection, nor with the lease of its attempt: nobody can call back a request that
// was sent, and its answer is recorded unless a newer attempt has begun. So:
//
//   - the upstream answered: its status decides, as package semelhttp says.
//   - there was no connection, or it was closed before anything was written, or the
//     upstream refused the stream (HTTP/2's REFUSED_STREAM), so
//     nothing was sent: the attempt is aborted, the caller gets 502 with the code
//     upstream_unreachable, and the next delivery runs.
//   - anything else, an answer that broke off included: the outcome is unknown.
//     The caller gets 502, or 504 after the deadline, with the code unknown and a
//     link to the call's status. The record is held, unless
//     Operation.OnAbandoned is retry, until [ReconcileHTTP] or an operator
//     settles it.
//
// The proxy itself never sends a request twice.
//
// With Options.EffectHeader, or if the operation declares Effects, the upstream call is in the
// ledger, as the effect [UpstreamEffect]: the intent is durable before the first byte leaves,
// which costs one more write. The key of the effect goes to the upstream. If the operation
// declares Effects and the proxy died before it sent anything, the call may run again.
//
// # Refusals
//
// Before it claims anything, the proxy refuses requests that it and the next hop could
// understand differently: a Connection header that names a header that matters, a space in the
// target, a method that isn't in capitals, and, behind [Strict], ambiguous framing (request
// smuggling).
//
// # Requests with a key never pass in silence
//
// A request with a key is guarded, or refused with the reason. Whether an answer can be
// replayed shows only when it arrives: a gRPC answer, or one larger than Operation.MaxResult,
// passes through as it comes; duplicates then get 410, and no second effect. An upgrade to another protocol is refused with 501, except for an offer of h2c, which
// is ignored. Kinds in Options.Unguarded pass, and the answer says so. Safe methods pass.
package semelproxy
