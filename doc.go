// Package semel gives exactly-once effects over at-least-once delivery.
//
// Clients retry, queues redeliver and processes crash. For payments, orders, webhooks
// and commands, Semel makes sure that the effect happens once and that every delivery
// gets the same answer.
//
// Start here: [New], [Options], [Operation], [Call] and [Do] run a call once. Wrap the
// calls of your handler to other systems in [Effect], and say with [Rejected], [Aborted]
// and [Unknown] what an error means. Run [Engine.Run] beside it; otherwise nothing that
// has expired is removed. docs/queues.md has a consumer of a queue. At the end close
// the server, then the guard, the engine and the store.
//
// These words have one meaning everywhere:
//
//   - A [Call] is one delivery. Its tenant, principal, operation and key form
//     its identity, the [ID].
//   - A [Record] is everything that is stored about one identity. A [Store] keeps it,
//     and changes it by one atomic, durable compare-and-set (optimistic concurrency).
//   - An [Attempt] is one execution under one lease. Its fence (a fencing token) is
//     higher than that of every earlier attempt, so a holder that was replaced can
//     change nothing.
//   - A [Decision] is what a delivery got: execute, replay, in_flight, conflict,
//     held, too_late, throttled, other_door, other_caller, superseded or
//     sequence_gap.
//   - An [Operation] names a kind of call and declares its policy.
//   - An effect is one call of an attempt to another system. [Attempt.Effects] and
//     [Effect] keep a durable ledger of them.
//
// The claim is durable before a handler starts, and the outcome is durable before
// anyone is answered. An error from a store means that the result is unknown,
// never that nothing happened: a store error never releases a key.
//
// [Engine.Do] runs a whole call; [Do] is the same with a typed result. Doors
// that must answer in their own protocol use [Engine.Begin] and end the attempt
// themselves with [Attempt.Complete], [Attempt.Reject], [Attempt.Fail],
// [Attempt.Abort] or [Attempt.Hold].
package semel
