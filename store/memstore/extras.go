package memstore

import "github.com/semelhq/semel/store"

// Extras is [store.Store.Extras].
func (s *Store) Extras() store.Extras {
	return store.Extras{Due: s, Purge: s, Watch: s, Search: s, Durability: s, Evidence: s, Local: true}
}
