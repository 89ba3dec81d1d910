// Package commerce has what the idempotency map says about operations of commerce.
//
// A [Format] makes the key of an operation from what the operation is about, so that every
// delivery of it has the same key, whoever sends it. The key belongs to a scope, such as
// a session, and [Key.Name] puts both into a call:
//
//	key, err := commerce.CartMandate.Key(commerce.Values{"session_id": "s1", "cart_hash": hash})
//	call := semel.Call{Operation: "carts.mandate"}
//	key.Name(&call)
//
// [Update] numbers the changes of a session's state, [Mandates] makes the mandates of carts
// and intents, [Payments] charges payments and [Orders] places orders, each once. They keep
// nothing beside the engine's records: a mandate, a payment and an order are calls.
//
// semel key derive knows the same formats by name, and so does key_template in the service's
// routes.
package commerce
