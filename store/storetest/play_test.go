package storetest

import (
	"testing"

	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// TestHistoriesReachEveryRule: a rule that no history comes to is not tested.
func TestHistoriesReachEveryRule(t *testing.T) {
	m := memstore.New()
	defer m.Close()
	p := newPair(&Env{Store: m})
	defer p.close()
	start := seed()
	t.Logf("repeat with -storetest.seed=%d", start)
	for i := range 300 {
		if err := p.play(t.Context(), start+uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{
		"begin execute", "begin replay", "begin remembered", "begin in_flight", "begin conflict", "begin held", "begin too_late", "begin error",
		"complete done", "complete refused", "reject done", "fail done", "abort done", "hold done", "abandon done",
		"renew done", "renew refused", "start effect done", "start effect refused", "confirm effect done", "confirm effect refused", "refute effect done", "refute effect refused",
		"settle done", "settle refused", "forget done", "forget refused", "sweep some", "sweep forgets", "lookup record", "lookup nothing",
		"apply right applied", "apply zero applied", "apply zero refused", "apply foreign refused", "apply old refused", "again refused",
		"due some", "due none", "purge some", "purge none", "get record", "get nothing", "reopen",
		"search all some", "search state some", "search held some", "search key some", "search operation some", "search principal some",
		"search after some", "search before some", "search bad cursor",
	} {
		if p.kinds[kind] == 0 {
			t.Errorf("in %d histories there was no %q", p.played, kind)
		}
	}
}

// TestHistoriesNeedNoExtras: what a store lacks is hidden from the oracle too.
func TestHistoriesNeedNoExtras(t *testing.T) {
	m := memstore.New()
	defer m.Close()
	p := newPair(&Env{Store: m})
	defer p.close()
	p.both = store.Extras{}
	for i := range histories() {
		if err := p.play(t.Context(), uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
}
