// Package pacing decides what each sweep looks at, so that expired records aren't purged too
// fast and due ones never wait for that.
package pacing

import (
	"sync"
	"time"
)

// passPause is the longest pause between two passes. A pass finds records that sweeps miss when
// they look ahead: ones written late, behind their cursor.
const passPause = time.Minute

// Pace says where the next sweep begins. A pass looks at all due records, in as many sweeps as
// that takes, and purges expired ones. If an interval or a rate paces the passes, the sweeps in
// between look ahead, only at records that have just become due.
type Pace struct {
	mu   sync.Mutex
	plan Plan
	// Local times: before them no pass starts, no purging pass starts, and no pass in progress
	// purges, respectively.
	nextPass, nextPurge, rated time.Duration
}

// Plan says what one sweep does.
type Plan struct {
	Pass, Purge bool
	After       string // where the pass continues; empty at its beginning
	Low         string // where looking ahead begins
	Behind      bool   // looking ahead made progress, but didn't reach the end
}

// Begin plans a sweep. Purging passes begin an interval apart.
func (s *Pace) Begin(now, interval time.Duration) Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.plan
	if p.After == "" {
		p.Pass, p.Purge = now >= s.nextPass, now >= s.nextPurge
		if p.Pass {
			s.nextPass = now + min(interval, passPause)
		}
		if p.Pass && p.Purge {
			s.nextPurge = now + interval
		}
	}
	plan := *p
	plan.Pass = p.Pass && (!p.Purge || now >= s.rated)
	return plan
}

// End records how far a sweep came, and how many records it purged, at a rate of so many per
// second; zero means any.
func (s *Pace) End(p Plan, now time.Duration, purged, rate int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan.Low, s.plan.Behind = p.Low, p.Behind
	if p.Pass {
		s.plan.After = p.After
	}
	if rate > 0 && purged > 0 {
		s.rated = now + time.Duration(purged)*time.Second/time.Duration(rate)
	}
}

// Forget makes the next sweep look at everything that is due again.
func (s *Pace) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan.Low = ""
}

// Wait returns how long to wait at most before the next sweep.
func (s *Pace) Wait(now, interval time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plan.Behind {
		return 0 // the newest due records wait behind ones that can only be purged
	}
	if s.plan.After == "" || s.rated <= now {
		return interval
	}
	return min(interval, s.rated-now)
}
