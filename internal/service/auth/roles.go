package auth

import (
	"fmt"
	"strings"
)

// Roles is what a caller may do. Each role includes those below it.
type Roles uint8

// The roles, from the least to the most.
const (
	NoRole   Roles = iota // data routes only
	Viewer                // look at records and configuration
	Operator              // settle, release and purge
	Admin                 // change what the server does
)

var roleNames = [...]string{"", "viewer", "operator", "admin"}

// Allows reports whether these roles include that one.
func (r Roles) Allows(role Roles) bool { return r >= role }

// String is the name of the highest role; empty for none.
func (r Roles) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("Roles(%d)", uint8(r))
}

// ParseRoles returns the highest of the named roles. Unknown names are an error.
func ParseRoles(names []string) (Roles, error) {
	roles := NoRole
	for _, name := range names {
		role, ok := roleByName(name)
		if !ok {
			return NoRole, fmt.Errorf("%q is not a role; there are viewer, operator and admin", name)
		}
		roles = max(roles, role)
	}
	return roles, nil
}

// knownRoles is ParseRoles for lists from issuers and proxies, which have other names
// too.
func knownRoles(names []string) Roles {
	roles := NoRole
	for _, name := range names {
		if role, ok := roleByName(name); ok {
			roles = max(roles, role)
		}
	}
	return roles
}

// otherNames are the names that aren't roles: rights, which mean nothing to this package.
func otherNames(names []string) (rights []string) {
	for _, name := range names {
		if _, role := roleByName(name); !role {
			rights = append(rights, name)
		}
	}
	return rights
}

func roleByName(name string) (Roles, bool) {
	for i, known := range roleNames {
		if i > 0 && name == known {
			return Roles(i), true
		}
	}
	return NoRole, false
}

// splitRoles splits a list that is written as one string, with commas or spaces.
func splitRoles(list string) []string {
	return strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })
}
