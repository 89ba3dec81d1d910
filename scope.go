package semel

import (
	"fmt"
	"strings"

	"github.com/semelhq/semel/store"
)

// maxDoorLen bounds [Call].Door, in bytes.
const maxDoorLen = 32

// ID is the identity of the call if its operation shares its keys by share. Doors use it
// to find the record of a call that a caller asks about.
func (c *Call) ID(share Share) ID {
	id := ID{Tenant: c.Tenant, Operation: c.Operation, Key: c.Key}
	if share != ShareTenant {
		id.Principal = c.Principal
	}
	if c.Scope != "" {
		id.Principal += store.ScopeMark + c.Scope
	}
	return id
}

// validateNames checks the fields that name the call's caller, holder and door.
func (c *Call) validateNames() error {
	if len(c.Principal) > store.MaxNameLen || strings.Contains(c.Principal, store.ScopeMark) || !store.ValidText(c.Principal) {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the principal is longer than %d bytes, not valid UTF-8, or has a NUL byte or %s", store.MaxNameLen, store.ScopeMark)}
	}
	if len(c.Scope) > store.MaxScopeLen || !store.ValidText(c.Scope) {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the scope is longer than %d bytes, not valid UTF-8 or has a NUL byte", store.MaxScopeLen)}
	}
	if len(c.BoundTo) > store.MaxNameLen || !store.ValidText(c.BoundTo) {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("what the call is bound to is longer than %d bytes, not valid UTF-8 or has a NUL byte", store.MaxNameLen)}
	}
	if len(c.Holder) > store.MaxNameLen || !store.ValidText(c.Holder) {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the holder is longer than %d bytes, not valid UTF-8 or has a NUL byte", store.MaxNameLen)}
	}
	if len(c.Door) > maxDoorLen || !store.ValidText(c.Door) {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the door is longer than %d bytes, not valid UTF-8 or has a NUL byte", maxDoorLen)}
	}
	return nil
}
