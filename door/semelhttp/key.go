package semelhttp

import (
	"net/http"

	"github.com/semelhq/semel/internal/extract"
)

// The longest keys that profiles accept, in bytes after unquoting.
const (
	maxKeyLen      = 256
	maxContractLen = 255 // of Stripe and ACP
	maxAdyenKeyLen = 64
)

// RequestKey finds the one key of a request in the header with that name, of at most limit
// bytes. present says that there is such a header, valid or not; fault is then a sentence for
// the caller, or empty. It is for doors without a [Guard].
func RequestKey(h http.Header, name string, limit int) (key string, present bool, fault string) {
	return extract.HeaderKey(h, name, limit, false)
}

// KeyTemplate makes keys from the content of requests. The zero value means none.
//
// Values in a JSON body are compared in the form that the key uses, a cart by its hash and a
// value by its text. Everything that isn't in the key is compared as it is, unless
// Route.FingerprintIgnore names it.
type KeyTemplate struct {
	// Template is the text of a key, with fields in braces, such as
	// order:{cart_mandate_id}:{user_id}. Fields that by their name differ in each delivery,
	// such as the current time or a nonce, are refused.
	Template string
	// Scope names the scope that keys are unique in, such as session, and ScopeField the
	// field that has its value, one of the template's or another. The scope is part of the
	// identity of a call, see [semel.Call]. Optional.
	Scope, ScopeField string
	// Values says where a request has the value of each field: header:NAME, query:NAME,
	// form:FIELD, json:/POINTER, hash:/POINTER for the SHA-256 of any value in a JSON
	// body, or cart:/POINTER for the hash of a list of items with variant, quantity and
	// price.
	Values map[string]string
}
