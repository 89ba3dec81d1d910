// Package semelhttp guards HTTP handlers: a request that arrives twice is executed once, and
// both callers get the same answer. If you write a client, use package safehttp to resend
// requests without doing things twice.
//
// A [Guard] wraps any [http.Handler] under a [Route]:
//
//	g, err := semelhttp.New(engine, nil)
//	mux.Handle("POST /charges", g.Handler(semelhttp.Route{
//		Operation: semel.Operation{Name: "payments.charge"},
//	}, charge))
//
// # What a delivery gets
//
// The key comes in the Idempotency-Key header, as a quoted string (RFC 8941) or bare, which is
// the same key (MAP-FLOW.1). The guard reads the whole body before it claims anything, and
// digests it together with the method, the path and the query. Then the engine decides:
//
//   - the first delivery runs the handler, detached from the client: hanging up
//     stops neither the handler nor the recording. Its answer is sent once it is
//     durable.
//   - a later one gets the recorded status, headers and body, marked with
//     Idempotency-Replayed: true (MAP-FLOW.2).
//   - one that comes while the first is running gets 409 with Retry-After and, if you
//     mount the status resource, a link to it (MAP-FLOW.3, IDS-IX.2); or it waits, if
//     it says Prefer: wait=N.
//   - the same key with another payload gets 422.
//   - a key that can't be guessed, but comes with another credential than the first
//     time, gets 409 if nobody has verified the caller; see [Caller.Name].
//   - if the store doesn't answer: 503, and nothing is executed.
//
// Every refusal is a problem document (RFC 9457) with a [semel.Code] or one of the codes of
// this package. A [Profile] has the statuses and shapes of another contract.
//
// # What a record keeps
//
// What happens to the call depends on what the answer proves, by the table of package judge.
// 2xx and 3xx complete the call. 4xx is a final refusal and is replayed, except statuses about
// a request's head, such as 401 and 429. With these, and with 307 and 308, a handler says that
// nothing was done, and the next delivery runs. 500 and other registered 5xx fail the attempt,
// and Operation.OnFailure decides; by default the next delivery runs, unless the operation is
// Financial. So do 502, 503 and 504, which prove nothing if the operation is Financial or the
// route Forwards. Nor does 408, 424 or a status that isn't registered, nor the 403 of a
// Financial operation. After those, a panic, or a 5xx once the handler's context was cancelled,
// nobody knows what happened: the attempt is given up as if the process had died, and runs
// again only if the ledger or Operation.OnAbandoned allows it. An answer that leaves an effect
// in the ledger without a result holds the call. A handler can say more with the header
// Semel-Effect, none or unknown, which callers don't get, and you can with Route.Answers.
//
// A handler that returns without writing has answered with net/http's empty 200, unless the
// operation is Financial: then nobody knows. If it hasn't touched its ResponseWriter at all,
// its answer may have gone elsewhere; see [ErrNoAnswer].
//
// The guard keeps the headers Content-Type, Content-Encoding, Content-Language,
// Content-Disposition, Content-Location, Content-Range, Location, ETag, Last-Modified, Link,
// Vary and Allow, and the ones that the route names, except headers that middleware had set to
// the same value before the handler ran. It never keeps cookies, credentials, dates, lengths,
// CORS, rate-limit and request-id headers. Trailers and 1xx answers go to the first caller
// only.
//
// So that every later caller can read the answer, a guarded handler sees an Accept-Encoding of
// gzip, or of identity alone, and a replay is unpacked for a caller who doesn't take gzip.
// Compress outside of the guard to use other codings.
//
// An answer passes through to the first caller as it comes if it is larger than
// Operation.MaxResult, is flushed while it is being written, or takes over the connection. An
// event stream is recorded meanwhile, see [StreamHeader]. All others leave a tombstone, before
// their first byte: later callers get 410 with the code result_not_kept, and nothing runs again.
//
// Your handler gets its attempt from [Attempt] and may use [semel.Effect] with it. If its
// effects are rows of a database, it can run inside a transaction that commits them together
// with its answer; see [Route].Tx.
//
// # Order of middleware
//
// Outside the guard, put everything that must happen for every delivery: compression,
// authentication, authorisation, rate limits, CORS, request ids. Put recoverers and timeouts
// outside as well. A recoverer inside answers for a handler that may have done anything, so the
// call is held after its 500 as after any panic; see [Panicked]. An [http.TimeoutHandler]
// inside says 503 while the handler goes on. Unless the operation is Financial or replays
// failures, the next delivery runs meanwhile.
//
// Put everything inside that is part of the one execution, and a framework's error handler. If
// it answers after the guarded handler has returned, that changes nothing, and Troubled of
// [semel.Events] reports it. docs/frameworks.md has the lines for chi, gorilla/mux, huma, gin,
// echo and fiber.
package semelhttp
