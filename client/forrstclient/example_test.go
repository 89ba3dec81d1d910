package forrstclient_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/semelhq/semel/client/forrstclient"
	"github.com/semelhq/semel/door/forrst"
)

// A payment that is charged once, however often it has to be asked for.
func Example() {
	charge := func(ctx context.Context, serviceURL, order string) (string, error) {
		// snippet: Call
		c, err := forrstclient.New(serviceURL, &forrstclient.Options{Header: http.Header{"Authorization": {"Bearer TOKEN"}}})
		if err != nil {
			return "", err
		}
		res, err := c.Call(ctx, forrstclient.Call{
			Function: "payments.charge", Version: "1.0.0", Key: "charge_" + order,
			Arguments: map[string]int{"amount": 100},
		})
		if said, ok := err.(forrst.Errors); ok && said[0].Code != forrst.IdempotencyProcessing {
			return "refused: " + said[0].Message, nil
		} else if err != nil {
			return "", fmt.Errorf("ask again later, with the same key: %w", err)
		}
		return string(res.Data), nil
		// end snippet
	}
	_, err := charge(context.Background(), "no URL", "order456")
	fmt.Println(err)
	// Output: forrstclient: a service has an http or https URL
}
