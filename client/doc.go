// Package client calls the Execution API of a Semel service. A [Client] is a
// [semel.Runner] and a [semel.Records], as an engine is, so a program moves from
// an engine of its own to a service by changing how it makes the one it has:
//
//	c, err := client.New("https://semel.internal:8480", &client.Options{TokenFile: "token"})
//	ans, err := c.Do(ctx, semel.Call{Operation: "payments.charge", Key: "order-42"}, charge)
//
// The handler still runs in this process. The service keeps the record, decides
// what each delivery gets, and gives the right to execute under a lease that the
// client renews.
//
// Tenant and principal of a call are those of the client's credential. Where a
// [semel.Call] names others, the call is refused.
//
// A request whose answer was lost is sent again in a form that is safe to repeat:
// a beginning names its holder, who alone is given the same right again, and an
// end that was recorded is answered as the first time. What stays unknown is told
// as [semel.CodeUnknown] and never as a failure.
//
// What a client can't know of a record it leaves empty: its revision, its origin
// and when somebody must look at it next.
package client
