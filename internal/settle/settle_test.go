package settle_test

import (
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/settle"
	"github.com/semelhq/semel/store"
)

// TestWaited: that somebody worked for hours before they began to charge proves nothing about the
// charge.
func TestWaited(t *testing.T) {
	const long = 2 * time.Hour
	began := store.Instant(0).Add(1000 * time.Hour)
	for name, c := range map[string]struct {
		effects []store.EffectRecord
		after   time.Duration
		want    bool
	}{
		"no effect":                       {nil, long, true},
		"no effect, too early":            {nil, long - 1, false},
		"an open one":                     {[]store.EffectRecord{{State: store.EffectStarted, StartedAt: began.Add(3 * time.Hour)}}, 4 * time.Hour, false},
		"an open one, long ago":           {[]store.EffectRecord{{State: store.EffectStarted, StartedAt: began.Add(3 * time.Hour)}}, 5 * time.Hour, true},
		"one that ended after its result": {[]store.EffectRecord{{State: store.EffectConfirmed, StartedAt: began.Add(3 * time.Hour)}}, 4 * time.Hour, true},
	} {
		held := semel.Record{Held: true, StartedAt: began, UpdatedAt: began.Add(c.after), Effects: c.effects}
		if got := settle.Waited(&held, long); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
