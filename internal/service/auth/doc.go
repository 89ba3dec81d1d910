// Package auth identifies the callers of a server: by static bearer tokens, JSON Web
// Tokens, client certificates, or headers that a named proxy sets.
//
// Three rules keep callers apart, because whoever is mistaken for somebody else gets the
// other's stored answers:
//
//   - An invalid credential of a configured method refuses the request. It is never
//     tried as another method, and never makes the caller anonymous.
//   - If several methods identify the caller, they must agree.
//   - Nobody gets a principal by default. A verified principal is never empty, and
//     never one of those that unverified callers get by their credential's digest.
//
// The package says who calls, and with which role. You decide what a role may do.
package auth
