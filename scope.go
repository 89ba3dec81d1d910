package semel

import (
	"fmt"
	"strings"
)

// maxScopeLen bounds [Call].Scope, in bytes.
const maxScopeLen = 128

// maxDoorLen bounds [Call].Door, in bytes.
const maxDoorLen = 32

// scopeMark stands between the principal and the scope of a call in ID.Principal: the
// symbol for a unit separator. No principal may have it, so no choice of the two can
// imitate another.
const scopeMark = "\u241f"

// ID is the identity of the call, where its operation shares its keys like that. It is
// for doors that are asked for a record by what its caller knows.
func (c *Call) ID(share Share) ID {
	id := ID{Tenant: c.Tenant, Operation: c.Operation, Key: c.Key}
	if share != ShareTenant {
		id.Principal = c.Principal
	}
	if c.Scope != "" {
		id.Principal += scopeMark + c.Scope
	}
	return id
}

// validateNames checks what names the caller of a call and binds the call to it.
func (c *Call) validateNames() error {
	if len(c.Principal) > maxNameLen || strings.Contains(c.Principal, scopeMark) || !validText(c.Principal) {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the principal is longer than %d bytes, not valid UTF-8, or has a NUL byte or %s", maxNameLen, scopeMark)}
	}
	if len(c.Scope) > maxScopeLen || !validText(c.Scope) {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the scope is longer than %d bytes, not valid UTF-8 or has a NUL byte", maxScopeLen)}
	}
	if len(c.BoundTo) > maxNameLen || !validText(c.BoundTo) {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("what the call is bound to is longer than %d bytes, not valid UTF-8 or has a NUL byte", maxNameLen)}
	}
	if len(c.Door) > maxDoorLen || !validText(c.Door) {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the door is longer than %d bytes, not valid UTF-8 or has a NUL byte", maxDoorLen)}
	}
	return nil
}

// Scope takes the principal scope apart: who acts, and the scope of the call, of which
// either may be empty.
func (id ID) Scope() (principal, scope string) {
	principal, scope, _ = strings.Cut(id.Principal, scopeMark)
	return principal, scope
}
