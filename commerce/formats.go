package commerce

import "slices"

// Format is the form of the keys of one type of operation. It is plain data; the variables
// of this package are the formats of the map.
type Format struct {
	// Name is what key_template and --template-name take.
	Name string `json:"name"`
	// Template is the text of a key, with fields in braces.
	Template string `json:"template"`
	// Scope says within what the key is unique (MAP-KEY.2), and ScopeField is the field that
	// names it. The scope is part of the identity of a call: the same key in another scope is
	// another call.
	Scope      string `json:"scope"`
	ScopeField string `json:"scope_field"`
}

// The formats of the idempotency map (MAP-KEY.1, MAP-KEY.3). Where the map has a timestamp
// or a nonce, the field is one that was stored with the intent before the first delivery.
// A retry would make a new one, and with it a new key; the linter refuses those.
var (
	// Session is the creation of a session of a device, and SessionNonce that of one
	// without: its nonce is stored with the intent to log in.
	Session      = Format{"session", "session:{user_id}:{device_id}:{intent.created_at}", "user", "user_id"}
	SessionNonce = Format{"session_nonce", "session:{user_id}:{intent.created_at}:{intent.nonce}", "user", "user_id"}
	// SessionUpdate is one numbered change of a session's state.
	SessionUpdate = Format{"session_update", "session_update:{session_id}:{operation_type}:{sequence_number}", "session", "session_id"}
	// CartMandate is the commitment to a cart; see [CartHash].
	CartMandate = Format{"cart_mandate", "cart_mandate:{session_id}:{cart_hash}", "session", "session_id"}
	// IntentMandate is the commitment to an intent, named by a hash of it.
	IntentMandate = Format{"intent_mandate", "intent_mandate:{user_id}:{intent_hash}", "user", "user_id"}
	// Payment is one payment of an order. The time is that of the intent to pay.
	Payment = Format{"payment", "payment:{order_id}:{amount}:{currency}:{intent.created_at}", "order", "order_id"}
	// Order is the order of a cart mandate.
	Order = Format{"order", "order:{cart_mandate_id}:{user_id}", "cart", "cart_mandate_id"}
	// Webhook is an event by its id, and PaymentWebhook one of a payment gateway that has
	// no id of its own.
	Webhook        = Format{"webhook", "webhook:{source}:{event_id}", "event", "event_id"}
	PaymentWebhook = Format{"payment_webhook", "webhook:{gateway}:{transaction_id}:{event_type}", "event", "transaction_id"}
	// Sync is one version of anything that two systems share. SyncUser also has the time
	// of the change, stored with it, and SyncProduct the universal product id.
	Sync        = Format{"sync", "sync:{entity}:{entity_id}:{version}", "entity", "entity_id"}
	SyncUser    = Format{"sync_user", "sync:user:{user_id}:{version}:{intent.updated_at}", "entity", "user_id"}
	SyncProduct = Format{"sync_product", "sync:product:{upid}:{version}", "entity", "upid"}
)

// formats is the one table: Go programs, routes and semel key derive use no other.
var formats = []Format{
	Session, SessionNonce, SessionUpdate, CartMandate, IntentMandate, Payment, Order, Webhook, PaymentWebhook, Sync, SyncUser, SyncProduct,
}

// Formats returns all formats, in the order of the map.
func Formats() []Format { return slices.Clone(formats) }

// FormatByName finds a format by its name.
func FormatByName(name string) (Format, bool) {
	i := slices.IndexFunc(formats, func(f Format) bool { return f.Name == name })
	if i < 0 {
		return Format{}, false
	}
	return formats[i], true
}
