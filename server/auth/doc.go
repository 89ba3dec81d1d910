// Package auth tells who calls a server: by static bearer tokens, JSON Web Tokens,
// client certificates, or headers that a named proxy sets.
//
// Three rules keep callers apart, since whoever is taken for somebody else gets
// that one's stored answers:
//
//   - A credential of a configured method that is not good refuses the request. It
//     is never tried as another method, and never makes the caller anonymous.
//   - If several methods tell who calls, they must agree.
//   - Nobody gets a principal by default. A verified principal is never empty, and
//     never one of those that unverified callers get by their credential's digest.
//
// The package says who calls and with which role. What a role may do is for the
// caller of this package to say.
package auth
