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

// String gives the name of the highest role, or nothing.
func (r Roles) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("Roles(%d)", uint8(r))
}

// ParseRoles gives the roles with these names. Unknown names are an error.
func ParseRoles(names []string) (Roles, error) {
	roles := NoRole
	for _, name := range names {
		role, ok := roleByName(name)
		if !ok {
			return NoRole, fmt.Errorf("%q is no role; there are viewer, operator and admin", name)
		}
		roles = max(roles, role)
	}
	return roles, nil
}

// knownRoles is ParseRoles for what others write. Their lists have names that mean
// nothing here.
func knownRoles(names []string) Roles {
	roles := NoRole
	for _, name := range names {
		if role, ok := roleByName(name); ok {
			roles = max(roles, role)
		}
	}
	return roles
}

// otherNames are the names that are no roles: rights, of which this package knows
// nothing.
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

// splitRoles takes a list apart that is written as one string, with commas or
// spaces.
func splitRoles(list string) []string {
	return strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })
}
