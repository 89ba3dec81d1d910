// Package forrst serves functions over Forrst 0.1.0 by HTTP, with its idempotency extension: a
// request that arrives twice is executed once, and both callers get the same result.
//
//	service, err := forrst.New(engine, forrst.Options{
//		Service: "payments-api",
//		Functions: []forrst.Function{{
//			Name: "payments.charge", Versions: []forrst.Version{{Version: "1.0.0", Run: charge}},
//		}},
//	})
//	mux.Handle("/forrst", service)
//
// # What a delivery gets
//
// A call's identity is its key, its function, and its version as written in the request
// (FOR-FIRST.1), within the verified caller. Two requests are the same if their arguments mean
// the same: the order of members and the spelling of numbers don't matter. Then the engine
// decides:
//
//   - the first delivery runs the function, and is answered once that is durable, with
//     the status "processed".
//   - a later one gets the recorded result or errors under its own id, with the status
//     "cached" and the id of the first (FOR-DUP.1).
//   - one that comes meanwhile gets IDEMPOTENCY_PROCESSING (FOR-PROC.1). So does one
//     after a first delivery with an unknown outcome; its details then have the
//     reason "outcome_unknown".
//   - one with other arguments gets IDEMPOTENCY_CONFLICT, with a hash of the first
//     arguments (FOR-CONF.1).
//
// If the arguments don't fit the schema of the version (Version.Arguments), the call gets
// SCHEMA_VALIDATION_FAILED with the place of each fault, and leaves nothing in the store. Only
// a key that was used before gets its recorded outcome, as above.
//
// # Which outcomes last
//
// The result of a function is recorded and replayed, and so are errors about the call itself,
// such as NOT_FOUND or one of the application's own codes. Errors that prove that nothing was
// done, such as RATE_LIMITED and FORBIDDEN, are never recorded: the next delivery runs.
// INTERNAL_ERROR and other failures are replayed unless Operation.OnFailure says "retry".
// DEADLINE_EXCEEDED, BATCH_TIMEOUT and DEPENDENCY_ERROR prove nothing, so the call is held.
// Package judge has the table. For an error marked with [semel.Rejected], [semel.Aborted],
// [semel.Failure] or [semel.Unknown], the mark decides.
//
// # Other extensions
//
// An extension that changes what a call does or returns, such as dry-run, simulation, async and
// redact, is refused with EXTENSION_NOT_SUPPORTED unless Options.Extensions has it: ignoring
// dry-run would make a real payment. The function gets the others.
package forrst
