package keytemplate

import "slices"

// A Builtin is a template that this package offers by name.
type Builtin struct {
	// Name is what --template-name takes.
	Name string `json:"name"`
	// Template is its text.
	Template string `json:"template"`
	// Scope says within what the key is unique, and ScopeField which field of the template
	// names that: with another value of it alone, the key is another.
	Scope      string `json:"scope"`
	ScopeField string `json:"scope_field"`
}

// builtins are the key formats of the idempotency map (MAP-KEY.1), adapted to
// retries: nonces are removed, since they would differ in every delivery; a timestamp
// is used only as an attribute that was stored with the intent; a version or
// sequence number replaces the timestamp beside it.
var builtins = []Builtin{
	{"session", "session:{user_id}:{device_id}:{intent.created_at}", "user", "user_id"},
	{"session_update", "session_update:{session_id}:{operation_type}:{sequence_number}", "session", "session_id"},
	{"cart_mandate", "cart_mandate:{session_id}:{cart_hash}", "session", "session_id"},
	{"intent_mandate", "intent_mandate:{user_id}:{intent_hash}", "user", "user_id"},
	{"payment", "payment:{order_id}:{amount}:{currency}:{intent.created_at}", "order", "order_id"},
	{"order", "order:{cart_mandate_id}:{user_id}", "cart", "cart_mandate_id"},
	{"webhook", "webhook:{source}:{event_id}", "event", "event_id"},
	{"payment_webhook", "webhook:{gateway}:{transaction_id}:{event_type}", "event", "transaction_id"},
	{"sync", "sync:{entity}:{entity_id}:{version}", "entity", "entity_id"},
}

// Builtins returns the built-in templates.
func Builtins() []Builtin { return slices.Clone(builtins) }
