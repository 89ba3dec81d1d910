package auth

import (
	"slices"
	"strings"
)

// Role is what a caller may do beyond their own calls. Each role includes the ones before.
type Role uint8

// The roles.
const (
	NoRole   Role = iota // their own calls only
	Viewer               // look at the records of their tenant
	Operator             // settle, release and purge them
	Admin                // everything
)

var roleNames = []string{"none", "viewer", "operator", "admin"}

// String is the role's name.
func (r Role) String() string { return roleNames[min(r, Admin)] }

// roleOf is the role with a name; [NoRole] if none has it.
func roleOf(name string) Role { return Role(max(slices.Index(roleNames, name), 0)) }

// grant gives the highest role that names stand for. Names that stand for none are rights.
func (id *Identity) grant(names []string, roleOf func(name string) Role) {
	for _, name := range names {
		role := roleOf(name)
		if id.Roles = max(id.Roles, role); role == NoRole {
			id.Rights = append(id.Rights, name)
		}
	}
}

// splitRoles splits a list that is written as one string, with commas or spaces.
func splitRoles(list string) []string {
	return strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })
}
