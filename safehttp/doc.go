// Package safehttp makes HTTP requests that have an effect. When a connection breaks, the
// transport of net/http resends a request that carries an Idempotency-Key, as if every
// service honoured that header. If a service doesn't, one call has two effects.
//
//   - [Transport] sends a request at most once, looks at a connection before it uses it
//     again, and can tell from an error whether anything was sent; see [NothingSent].
//   - [Retrier] gives a request a key and sends it again with that key, for services
//     that honour it.
//   - [Client] asks one question of one address, within bounds.
//   - [Guard] keeps requests to addresses that others name out of your own network.
//
// The doors and senders of this module use all of them. You can use them alone: the
// package needs only the standard library.
package safehttp
