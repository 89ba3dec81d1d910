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
//   - there was no connection, so nothing was sent: the attempt is aborted, the
//     caller gets 502 with the code upstream_unreachable, and the next delivery
//     runs.
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
// header that matters, and, behind [Strict], those whose framing is ambiguous.
// Server-sent events, upgrades and gRPC can't be replayed. They pass unguarded
// where Options.Unguarded names them, and are refused with 501 elsewhere.
package semelproxy
