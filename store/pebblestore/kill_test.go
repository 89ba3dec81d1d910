package pebblestore

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store"
)

// A process that works on a store is killed again and again, while it opens the
// directory or after any number of answers. The next one goes on there. Every
// second one takes with it what it had not synced.
func TestWhatWasAcknowledgedSurvivesKill(t *testing.T) {
	clause.Proves(t, "CORE-CONC.1", "CORE-INV.3", "IDS-VIII.1", "ON-EMBEDDED", "G-DURABLE", "G-LEVEL")
	cycles := max(thorough.Scaled(200), 10)
	seed := newSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	h := newHistory(0)
	opened, records, answers := 0, 0, 0
	for i := range cycles {
		c := startChild(t, orders{Dir: dir, Run: i, Seed: seed, Steps: math.MaxInt, Forgets: i%2 == 1})
		var f follower
		switch d := time.Duration(5+rng.IntN(56)) * time.Millisecond; rng.IntN(4) {
		case 0:
			f.afterStart = d
		case 1:
			f.whenOpen = d
		default:
			f.answers = 1 + rng.IntN(400)
		}
		r := f.follow(t, c, h)
		if code := c.ended(t); code != -1 {
			t.Fatalf("child %d ended with code %d before it was killed:\n%s", i, code, c.stderr.String())
		}
		if r.opened {
			opened++
		}
		records, answers = records+r.found, answers+r.answers
	}
	s := mustOpen(t, dir, nil)
	defer s.Close()
	if d, err := s.Durability(t.Context()); err != nil || d.Level != store.LevelDisk {
		t.Errorf("the level is %s, %v", d.Level, err)
	}
	stored, err := inspect(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.compare(stored); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d kills, %d of them after the store was open; %d records found, %d answers to callers, none lost", cycles, opened, records+len(stored), answers)
	if opened < cycles/2 || answers < 20*cycles {
		t.Error("too little has happened to prove anything")
	}
}
