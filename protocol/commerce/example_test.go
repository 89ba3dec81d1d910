package commerce_test

import (
	"fmt"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/protocol/commerce"
)

func ExampleFormat_Key() {
	// snippet: CartMandate
	hash, err := commerce.CartHash([]commerce.Line{
		{Variant: "shirt-m", Quantity: 2, Price: "19.90"},
		{Variant: "mug", Quantity: 1, Price: "7.50"},
	})
	if err != nil {
		panic(err)
	}
	key, err := commerce.CartMandate.Key(commerce.Values{"session_id": "sess_abc123", "cart_hash": hash})
	if err != nil {
		panic(err)
	}
	call := semel.Call{Operation: "carts.mandate"}
	key.Name(&call) // the key, and the session as its scope
	// end snippet
	fmt.Println(call.Key[:27], call.Scope)
	// Output: cart_mandate:sess_abc123:16 session=sess_abc123
}
