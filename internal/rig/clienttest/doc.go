// Package clienttest has the clients for Go, TypeScript and Python do the same things against the
// same service, over a network that fails, and compares what their users see.
package clienttest
