package keytemplate

import "slices"

// A Builtin is a template that this package offers by name.
type Builtin struct {
	// Name is what --template-name takes.
	Name string `json:"name"`
	// Template is its text.
	Template string `json:"template"`
	// Scope says within what the key is unique, for people.
	Scope string `json:"scope"`
}

// builtins are the key formats of the idempotency map (MAP-KEY.1), adapted to
// retries: nonces are removed, since they would differ in every delivery; a timestamp
// is used only as an attribute that was stored with the intent; a version or
// sequence number replaces the timestamp beside it.
var builtins = []Builtin{
	{"session", "session:{user_id}:{device_id}:{intent.created_at}", "user"},
	{"session_update", "session_update:{session_id}:{operation_type}:{sequence_number}", "session"},
	{"cart_mandate", "cart_mandate:{session_id}:{cart_hash}", "session"},
	{"intent_mandate", "intent_mandate:{user_id}:{intent_hash}", "user"},
	{"payment", "payment:{order_id}:{amount}:{currency}:{intent.created_at}", "order"},
	{"order", "order:{cart_mandate_id}:{user_id}", "cart"},
	{"webhook", "webhook:{source}:{event_id}", "event"},
	{"payment_webhook", "webhook:{gateway}:{transaction_id}:{event_type}", "event"},
	{"sync", "sync:{entity}:{entity_id}:{version}", "entity"},
}

// Builtins returns the built-in templates.
func Builtins() []Builtin { return slices.Clone(builtins) }
