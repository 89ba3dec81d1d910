// Package client calls the Execution API of a Semel service. A [Client] is a [semel.Doer] and a
// [Records], as an engine is, so you can move your program from an engine of its own to a
// service by changing one line:
//
//	c, err := client.New("https://semel.internal:8480", &client.Options{TokenFile: "token"})
//	ans, err := c.Do(ctx, semel.Call{Operation: "payments.charge", Key: "order-42"}, charge)
//
// Your handler still runs in your process. The service keeps the record, decides what each
// delivery gets, and gives the right to execute under a lease, which the client renews.
//
// A call's tenant and principal come from the client's credential. If a [semel.Call] names
// others, it is refused.
//
// If an answer is lost, the client sends the request again in a form that is safe to repeat. A
// beginning names its holder, and only that holder gets the same right again; an end that is
// already recorded gets the same answer as the first time. If the result stays unknown, the
// error is [semel.CodeUnknown], never a failure.
//
// A client leaves some fields of a record empty, because only the service knows them: the
// revision, the origin, and when somebody must look at the record next.
package client
