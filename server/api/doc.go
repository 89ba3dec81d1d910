// Package api is the Execution API v1: the engine for programs that run the work
// themselves, in any language, over HTTP and JSON. It is a door: it translates
// requests into calls of [semel.Engine] and decisions into answers, and has no
// rules of its own.
//
// A caller begins an execution, does the work under the lease that it got, and
// ends it. The execution's name is the record's and the fence, so every node that
// shares the store can serve every request. The lease of a remote holder is the
// operation's lease, and nobody but the holder renews it.
//
// Every refusal is an RFC 9457 problem whose type resolves on the same server; see
// [Problems].
package api
