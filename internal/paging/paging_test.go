package paging

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for name, c := range map[string]struct {
			ctx   context.Context
			bytes int
			after time.Duration
			want  bool
		}{
			"little":                        {t.Context(), Bytes - 1, pace - 1, false},
			"as many bytes as there may be": {t.Context(), Bytes, 0, true},
			"as long as it may take":        {t.Context(), 1, pace, true},
			"half of what a call may take":  {short, 1, time.Second / 2, true},
			"less than half":                {short, 1, time.Second/2 - 1, false},
			"other bounds":                  {With(t.Context(), 10, time.Minute), 9, 59 * time.Second, false},
			"no bytes, and nothing read":    {With(t.Context(), 0, time.Minute), 0, 0, false},
			"no bytes":                      {With(t.Context(), 0, time.Minute), 1, 0, true},
			"no time":                       {With(t.Context(), 10, 0), 0, 0, true},
		} {
			b := New(c.ctx)
			if b.Spent {
				t.Errorf("%s: spent before anything was looked at", name)
			}
			b.ends = b.ends.Add(-c.after)
			if b.Spend(c.bytes); b.Spent != c.want {
				t.Errorf("%s: spent is %t", name, b.Spent)
			}
		}
	})
}
