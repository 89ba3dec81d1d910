package bootclock

import (
	"testing"
	"time"
)

func TestUntil(t *testing.T) {
	was := Reading{ID: "a", Up: time.Hour, Slept: time.Second}
	for name, c := range map[string]struct {
		now   Reading
		slept time.Duration
		moves bool
	}{
		"awake":        {Reading{"a", 2 * time.Hour, time.Second + minSlept}, 0, false},
		"slept":        {Reading{"a", 2 * time.Hour, 3 * time.Second}, 2 * time.Second, true},
		"another boot": {Reading{"b", time.Minute, 0}, 0, true},
		"unreadable":   {Reading{}, 0, false},
	} {
		slept, next := was.Until(c.now)
		if slept != c.slept || (next == c.now) != c.moves || !c.moves && next != was {
			t.Errorf("%s: slept %v, next %v", name, slept, next)
		}
	}
}
