// Package semelproxy guards an HTTP service that knows nothing of idempotency
// keys, from in front of it. A [Proxy] is one route to one upstream:
//
//	p, err := semelproxy.New(guard, semelproxy.Options{
//		Upstream: upstream,
//		Route:    semelhttp.Route{Operation: semel.Operation{Name: "payments.charge"}},
//	})
//	mux.Handle("/charges", p)
//	listener = semelproxy.Strict(server, listener)
//	err = server.Serve(listener)
//
// What a delivery gets is as in package semelhttp; the upstream is the handler.
//
// # What became of a request
//
// The call to the upstream has its own deadline, Route.Timeout, and does not end
// with the client's connection, nor with the lease of its attempt: what was sent can't
// be called back, and its answer is recorded unless another was given the right to
// execute by then. So:
//
//   - the upstream answered: its status decides, as package semelhttp says.
//   - there was no connection, or it was closed before anything was written, so
//     nothing was sent: the attempt is aborted, the caller gets 502 with the code
//     upstream_unreachable, and the next delivery runs.
//   - anything else, also an answer that broke off: what happened is not known.
//     The caller gets 502, or 504 after the deadline, with the code unknown and a
//     link to the call's status. The record is held, unless
//     Operation.OnAbandoned is retry, until [ReconcileHTTP] or an operator
//     settles it.
//
// A request is never sent twice by the proxy itself.
//
// With Options.EffectHeader, or if the operation declares Effects, the upstream
// call is in the ledger, as the effect [UpstreamEffect]: that it is about to be
// made is durable before its first byte leaves, which costs one write more. The
// key of the effect goes to the upstream, and a proxy that died before it sent
// anything leaves a call that may run again, if the operation declares Effects.
//
// # What is refused
//
// Requests that could mean one thing to this proxy and another to the next hop
// are refused before anything is claimed: those whose Connection header names a
// header that matters, those with a space in their target or a method that is not in
// capitals, and, behind [Strict], those whose framing is ambiguous.
//
// # Requests with a key never pass in silence
//
// A request with a key is guarded, or refused and told why. What can't be replayed is
// known by the answer, not by what the request asks for: an event stream, a gRPC
// answer, or one larger than Operation.MaxResult is passed through as it comes;
// duplicates then get 410, and no second effect. An upgrade to another protocol is
// refused with 501, unless it is an offer of h2c, which is ignored. What
// Options.Unguarded names passes, and its answer says so. Safe methods pass.
package semelproxy
