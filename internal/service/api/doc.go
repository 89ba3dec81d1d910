// Package api is the Execution API v1: the engine over HTTP and JSON, for programs in any
// language that run the work themselves. It is a door: it translates requests into calls
// of [semel.Engine] and decisions into answers, and has no rules of its own.
//
// A caller begins an execution, does the work under the lease that they got, and ends the
// execution. The execution's name consists of the record and the fence, so any node that
// shares the store can serve any request. The lease of a remote holder is the
// operation's, and only the holder renews it.
//
// Every refusal is an RFC 9457 problem. Its type is a page on the same server.
package api
