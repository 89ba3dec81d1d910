// Package forrstclient calls functions over Forrst, and retries them by the specification of
// its idempotency extension: with the same key, a new request id for each try, and after the
// pause that the service asks for.
//
//	c, err := forrstclient.New("https://payments.internal/forrst", nil)
//	res, err := c.Call(ctx, forrstclient.Call{
//		Function: "payments.charge", Version: "1.0.0", Key: "charge_order456_v1",
//		Arguments: map[string]int{"amount": 100},
//	})
//
// The service runs the function once for the key, whatever gets lost on the way. Keep the key
// with the subject of the call, and after an error that leaves the outcome open call again with
// it, even after a restart of your program.
package forrstclient
