// Package semel gives exactly-once effects over at-least-once delivery.
//
// A payment, an order, a webhook or a command may be delivered twice, at once,
// late or out of order, and the process that handles it may die half-way. Semel
// lets the effect happen once and gives every delivery the same answer.
//
// Start here: [New], [Options], [Operation], [Call] and [Do] run a call once; [Effect]
// keeps what it does outside; [Rejected], [Aborted] and [Unknown] say what an error
// means. Run [Engine.Run] beside it: without it nothing that has expired is removed.
// At the end close the server, then the guard, the engine and the store.
//
// The words of this package are used with one meaning everywhere:
//
//   - A [Call] is one delivery. Its tenant, principal, operation and key form
//     its identity, the [ID].
//   - A [Record] is everything known about one identity. It is kept by a
//     [Store], which offers one atomic, durable compare-and-set.
//   - An [Attempt] is one execution under one lease. Its fence is higher than
//     that of every earlier attempt, so a holder that was thought dead can
//     change nothing once somebody else has taken over.
//   - A [Decision] is what a delivery got: execute, replay, in_flight, conflict,
//     held, expired, throttled or other_caller.
//   - An [Operation] names a kind of call and declares its policy.
//   - An effect is one external call made by an attempt. [Attempt.Effects] and
//     [Effect] keep a durable ledger of them.
//
// The claim is durable before a handler starts and the outcome is durable before
// anyone is answered. An error from a store means that the result is unknown,
// never that nothing happened: no error frees a key.
//
// [Engine.Do] runs one call whole; [Do] is the same with a typed result. Doors
// that must answer in their own protocol use [Engine.Begin] and end the attempt
// themselves with [Attempt.Complete], [Attempt.Reject], [Attempt.Fail],
// [Attempt.Abort] or [Attempt.Hold].
package semel
