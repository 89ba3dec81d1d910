package faultstore_test

import (
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// Short names, under which the combinations fit on lines.
type (
	base   = semel.Store
	due    = semel.DueStore
	purge  = semel.PurgeStore
	watch  = semel.WatchStore
	search = semel.SearchStore

	evidence = semel.EvidenceStore
)

// abilities names the optional interfaces that a store has.
func abilities(s semel.Store) string {
	var names []string
	add := func(has bool, name string) {
		if has {
			names = append(names, name)
		}
	}
	_, has := s.(semel.DueStore)
	add(has, "Due")
	_, has = s.(semel.PurgeStore)
	add(has, "Purge")
	_, has = s.(semel.WatchStore)
	add(has, "Watch")
	_, has = s.(semel.SearchStore)
	add(has, "Search")
	_, has = s.(semel.EvidenceStore)
	add(has, "Evidence")
	return strings.Join(names, " ")
}

func TestOptionalInterfacesAreForwarded(t *testing.T) {
	m := memstore.New()
	b := struct{ base }{m}
	stores := []semel.Store{
		b,
		struct {
			base
			due
		}{b, m},
		struct {
			base
			purge
		}{b, m},
		struct {
			base
			due
			purge
		}{b, m, m},
		struct {
			base
			watch
		}{b, m},
		struct {
			base
			due
			watch
		}{b, m, m},
		struct {
			base
			purge
			watch
		}{b, m, m},
		struct {
			base
			due
			purge
			watch
		}{b, m, m, m},
		struct {
			base
			search
		}{b, m},
		struct {
			base
			due
			search
		}{b, m, m},
		struct {
			base
			purge
			search
		}{b, m, m},
		struct {
			base
			due
			purge
			search
		}{b, m, m, m},
		struct {
			base
			watch
			search
		}{b, m, m},
		struct {
			base
			due
			watch
			search
		}{b, m, m, m},
		struct {
			base
			purge
			watch
			search
		}{b, m, m, m},
		struct {
			base
			due
			purge
			watch
			search
		}{b, m, m, m, m},
		struct {
			base
			due
			purge
			watch
			search
			evidence
		}{b, m, m, m, m, m},
	}
	seen := map[string]bool{}
	for _, s := range stores {
		want := abilities(s)
		seen[want] = true
		t.Run("a store with "+want, func(t *testing.T) {
			wrapped, _ := faultstore.New(s, nil)
			if got := abilities(wrapped); got != want {
				t.Fatalf("the wrapper has %s", got)
			}
		})
	}
	if len(seen) != 17 {
		t.Fatalf("%d combinations were tried, not 17", len(seen))
	}
}
