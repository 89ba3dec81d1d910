// Package peers compares Semel with other Go projects that keep a call from being
// executed twice: Fiber's idempotency middleware, with its own memory and on Redis, and
// DBOS Transact on PostgreSQL, whose workflows have an id that runs once. Each pair has
// the same handler, callers, keys and server, and takes turns in one run.
//
// It is a module of its own, so that users of Semel don't get the peers' dependencies.
// Run it with make bench-peers. It has only tests: they start the servers.
package peers
