package storetest

import (
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/thorough"
)

var sequenceCases = []testCase{
	{"histories of sequences: each number keeps its outcome, and none begins beside another or below a later one",
		"Each number of a sequence is a record of its own, and so is the mark that orders them. Whatever happens to one number never changes what another gets.",
		func(t *testing.T, env Env) {
			clause.Proves(t, "MAP-SESS.2", "MAP-SESS.4")
			kinds, start := map[string]int{}, seed()
			t.Logf("repeat with -storetest.seed=%d", start)
			for i := range uint64(thorough.Scaled(200)) {
				sequenceHistory(t, env.Store, start+i, kinds)
			}
			t.Log(kinds)
		}},
}

// sequenceHistory plays one history, and counts what happened.
func sequenceHistory(t *testing.T, s semel.Store, seed uint64, kinds map[string]int) {
	t.Helper()
	p, err := newSequencePlayer(t.Context(), s, seed, kinds)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.play(); err != nil {
		t.Fatalf("-storetest.seed=%d: %v\nafter:\n%s", seed, err, strings.Join(p.log[max(0, len(p.log)-60):], "\n"))
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}
