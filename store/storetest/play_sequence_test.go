package storetest

import (
	"testing"
	"testing/synctest"

	"github.com/semelhq/semel/store/memstore"
)

// TestSequencesReachEveryRule: a rule that no history comes to is not tested.
func TestSequencesReachEveryRule(t *testing.T) {
	kinds := map[string]int{}
	for i := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			m := memstore.New()
			defer m.Close()
			sequenceHistory(t, m, 1+i, kinds)
		})
	}
	for _, kind := range []string{
		"execute", "replay", "in_flight", "held", "superseded", "sequence_gap", "other_caller",
		"complete", "reject", "fail", "abort", "hold", "late end", "settle", "compensate", "remembered",
		"crash before", "crash after", "race", "purge one", "purge some", "purge all",
	} {
		if kinds[kind] == 0 {
			t.Errorf("in all histories there was no %q: %v", kind, kinds)
		}
	}
}
