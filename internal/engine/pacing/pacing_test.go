package pacing

import (
	"testing"
	"time"
)

func TestPassesThatPurgeBeginAnIntervalApart(t *testing.T) {
	var s Pace
	for at, want := range []Plan{{Pass: true, Purge: true}, {}, {Pass: true}, {}, {Pass: true, Purge: true}} {
		now := time.Duration(at) * 40 * time.Second
		if at == 1 {
			now = time.Second
		}
		p := s.Begin(now, 150*time.Second)
		if p.Pass != want.Pass || p.Pass && p.Purge != want.Purge {
			t.Errorf("at %v: %+v", now, p)
		}
		s.End(p, now, 0, 0)
	}
}

func TestAPassGoesOnWhereItStopped(t *testing.T) {
	var s Pace
	p := s.Begin(0, 0)
	p.After, p.Low = "after", "low"
	s.End(p, 0, 100, 10)
	if w := s.Wait(time.Second, time.Minute); w != 9*time.Second {
		t.Errorf("waits %v after 100 of 10 a second", w)
	}
	if p = s.Begin(time.Second, 0); p.Pass || p.Low != "low" {
		t.Errorf("purges beyond the rate: %+v", p)
	}
	p.Behind = true
	s.End(p, time.Second, 0, 10)
	if w := s.Wait(time.Second, time.Minute); w != 0 {
		t.Errorf("waits %v although records are behind", w)
	}
	s.Forget()
	if p = s.Begin(11*time.Second, 0); !p.Pass || p.After != "after" || p.Low != "" {
		t.Errorf("goes on with %+v", p)
	}
}
