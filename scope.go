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
	id := c.sequence(share)
	if c.Sequence != 0 {
		id = id.Numbered(c.Sequence)
	}
	return id
}

// sequence is the identity of the call without its number.
func (c *Call) sequence(share Share) ID {
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
	for _, name := range [...]struct {
		what, text string
		most       int
	}{
		{"the principal", c.Principal, store.MaxNameLen}, {"the scope", c.Scope, store.MaxScopeLen},
		{"what the call is bound to", c.BoundTo, store.MaxNameLen}, {"the holder", c.Holder, store.MaxNameLen}, {"the door", c.Door, maxDoorLen},
	} {
		if len(name.text) > name.most || !store.ValidText(name.text) {
			return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("%s is longer than %d bytes, not valid UTF-8 or has a NUL byte", name.what, name.most)}
		}
	}
	if strings.Contains(c.Principal, store.ScopeMark) {
		return &Error{Code: CodeInvalidCall, Message: "the principal has " + store.ScopeMark}
	}
	return nil
}
