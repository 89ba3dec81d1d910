// Package idstest is the conformance tests of RFC-WF-0010 (IDS XIII) for any implementation
// that takes commands over HTTP, in any language.
//
// A test of an implementation makes a [Provider], configures three commands to call it, starts
// the implementation, and calls [Run]:
//
//	p := idstest.NewProvider(t)
//	// entity "idstest", actions "charge", "slow" and "confirmed": each sends the
//	// envelope by POST to p.URL; "confirmed" asks for a confirmation first; callers
//	// may choose the idempotency_key of "charge"
//	idstest.Run(t, idstest.Target{URL: "http://…/v1/commands", Provider: p, …})
//
// The provider counts what reaches it, so effects are counted where they happen, not by whoever
// claims to have caused them.
//
// If your implementation's answers have another shape, translate them with [Target].Read; if it
// confirms in another way, use [Target].Confirm.
package idstest
