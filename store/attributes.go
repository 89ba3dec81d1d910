package store

import (
	"fmt"
	"maps"
	"slices"
)

// Attributes are facts about a call, stored in its record. They aren't part of its identity
// and aren't compared. Put things here that don't belong in a key, such as the current time, a
// message id or a correlation id.
type Attributes map[string]string

// AttributeCommandID is the name under which commands keep their id. A
// confirmation token is bound to it (IDS-X.1).
const AttributeCommandID = "command_id"

// Further attributes, for ids that callers or senders of events know a call by. Doors store
// the first delivery's.
const (
	AttributeCorrelationID = "correlation_id"
	AttributeRequestID     = "request_id"
	AttributeEventID       = "event_id"
	// AttributeTransactionID is the gateway's id of a payment, for reconciliation.
	AttributeTransactionID = "transaction_id"
)

// AttributeTrace is the name under which a record keeps the W3C trace context (traceparent) of
// its newest attempt, if that was traced and sampled. Duplicates link their traces to it.
const AttributeTrace = "traceparent"

// AttributePayment is the name under which an event's record keeps the payment that it is
// about; see [PaymentOf].
const AttributePayment = "payment"

// IDAttributes are the attributes that are ids. You can find a record and its evidence by their
// values.
var IDAttributes = []string{AttributeCommandID, AttributeCorrelationID, AttributeRequestID, AttributeEventID, AttributeTransactionID}

// AttributeCompensates is the name under which a compensating call keeps
// [ID.Encode] of the call that it undoes. Its value may be as long as the longest
// identity.
const AttributeCompensates = "compensates"

// Bounds of [Attributes].
const (
	MaxAttributes     = 16
	maxAttributeName  = 64
	maxAttributeValue = 1 << 10
	// maxEncodedID is the length of the longest [ID.Encode]: a version and four members with
	// two-byte lengths, in base64.
	maxEncodedID = (1 + 3*(MaxNameLen+2) + MaxKeyLen + 2 + 2) / 3 * 4
)

// With returns a plus the attributes of more, except invalid ones and ones that don't fit. It
// changes neither map.
func (a Attributes) With(more Attributes) Attributes {
	if len(more) == 0 {
		return a
	}
	all := make(Attributes, len(a)+len(more))
	maps.Copy(all, a)
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if _, there := all[name]; (there || len(all) < MaxAttributes) && (Attributes{name: more[name]}).Validate() == nil {
			all[name] = more[name]
		}
	}
	return all
}

// Validate rejects attributes that are too many, too long, or not text that every store
// can keep. The error has [CodeInvalidCall].
func (a Attributes) Validate() error {
	if len(a) > MaxAttributes {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the call has %d attributes, more than %d", len(a), MaxAttributes)}
	}
	for name, value := range a {
		if name == "" || len(name) > maxAttributeName || !ValidText(name) {
			return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the name of an attribute has 1 to %d bytes of UTF-8 without NUL", maxAttributeName)}
		}
		longest := maxAttributeValue
		if name == AttributeCompensates {
			longest = maxEncodedID
		}
		if len(value) > longest || !ValidText(value) {
			return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("attribute %s is longer than %d bytes, not valid UTF-8 or has a NUL byte", name, longest)}
		}
	}
	return nil
}
