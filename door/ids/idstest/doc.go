// Package idstest is the conformance tests of RFC-WF-0010 (IDS XIII) for any
// implementation that takes commands over HTTP, in any language.
//
// A test of an implementation makes a [Provider], configures three commands to call
// it, starts the implementation, and calls [Run]:
//
//	p := idstest.NewProvider(t)
//	// entity "idstest", actions "charge", "slow" and "confirmed": each sends the
//	// envelope by POST to p.URL; "confirmed" asks for a confirmation first; callers
//	// may choose the idempotency_key of "charge"
//	idstest.Run(t, idstest.Target{URL: "http://…/v1/commands", Provider: p, …})
//
// The provider counts what reaches it, so effects are counted where they happen and
// not by who claims to have caused them.
//
// An implementation with another shape of answers brings a [Target].Read that
// translates them; one with another way to confirm brings a [Target].Confirm.
package idstest
