package faultstore

import (
	"context"

	"github.com/semelhq/semel"
)

// Short names, under which the combinations fit on lines.
type (
	base      = semel.Store
	withDue   = semel.DueStore
	withPurge = semel.PurgeStore
	withWatch = semel.WatchStore
	withFind  = semel.SearchStore

	withEvidence = semel.EvidenceStore
)

// has says which of the optional interfaces a store has.
type has struct{ due, purge, watch, find bool }

// wrap gives the wrapper the optional interfaces that inner has. The method sets
// must differ, so there is one type for each combination.
func wrap(inner semel.Store, c *Control) semel.Store {
	v := &verbs{inner: inner, control: c}
	v.closed, v.close = context.WithCancel(context.Background())
	var is has
	_, is.due = inner.(semel.DueStore)
	_, is.purge = inner.(semel.PurgeStore)
	_, is.find = inner.(semel.SearchStore)
	w, watches := inner.(semel.WatchStore)
	is.watch = watches
	d, p, f := dueVerb{v}, purgeVerb{v}, searchVerb{v}
	// A store with an evidence log has all the others too, as far as is known.
	if ev, ok := inner.(semel.EvidenceStore); ok && is == (has{due: true, purge: true, watch: true, find: true}) {
		return struct {
			base
			withDue
			withPurge
			withWatch
			withFind
			withEvidence
		}{v, d, p, w, f, evidenceVerb{v, ev}}
	}
	switch is {
	case has{due: true, purge: true, watch: true, find: true}:
		return struct {
			base
			withDue
			withPurge
			withWatch
			withFind
		}{v, d, p, w, f}
	case has{due: true, purge: true, watch: true}:
		return struct {
			base
			withDue
			withPurge
			withWatch
		}{v, d, p, w}
	case has{due: true, purge: true, find: true}:
		return struct {
			base
			withDue
			withPurge
			withFind
		}{v, d, p, f}
	case has{due: true, purge: true}:
		return struct {
			base
			withDue
			withPurge
		}{v, d, p}
	case has{due: true, watch: true, find: true}:
		return struct {
			base
			withDue
			withWatch
			withFind
		}{v, d, w, f}
	case has{due: true, watch: true}:
		return struct {
			base
			withDue
			withWatch
		}{v, d, w}
	case has{due: true, find: true}:
		return struct {
			base
			withDue
			withFind
		}{v, d, f}
	case has{due: true}:
		return struct {
			base
			withDue
		}{v, d}
	case has{purge: true, watch: true, find: true}:
		return struct {
			base
			withPurge
			withWatch
			withFind
		}{v, p, w, f}
	case has{purge: true, watch: true}:
		return struct {
			base
			withPurge
			withWatch
		}{v, p, w}
	case has{purge: true, find: true}:
		return struct {
			base
			withPurge
			withFind
		}{v, p, f}
	case has{purge: true}:
		return struct {
			base
			withPurge
		}{v, p}
	case has{watch: true, find: true}:
		return struct {
			base
			withWatch
			withFind
		}{v, w, f}
	case has{watch: true}:
		return struct {
			base
			withWatch
		}{v, w}
	case has{find: true}:
		return struct {
			base
			withFind
		}{v, f}
	}
	return v
}
