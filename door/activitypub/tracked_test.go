package activitypub_test

import (
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store/pebblestore"
)

// TestIDsAreTrackedInTheStore: a new process over the same data knows them.
func TestIDsAreTrackedInTheStore(t *testing.T) {
	clause.Proves(t, "VUL-02-002", "VUL-03-001")
	dir := t.TempDir()
	for i, answer := range []string{"queued", "already"} {
		t.Run(answer, func(t *testing.T) {
			st, err := pebblestore.Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			w := newWorldOn(t, st, nil)
			w.want(202, answer, note("1"))
			if i == 0 {
				w.wantWorked(1)
			}
		})
	}
}
