// Package waiting lets deliveries wait for the outcome of a call: it limits how many may, wakes
// them, and lets them share one look at the record.
package waiting

import (
	"sync"
	"sync/atomic"
)

// Seats limit how many deliveries wait at a time.
type Seats[K comparable] struct {
	// Max is the number of seats.
	Max   int
	count atomic.Int64 // all of them

	mu sync.Mutex
	of map[K]int // how many waiters each has
}

// Admit counts a waiter in. A tenant, or a network, may have only as many waiters as there are
// free seats, so that others can always wait, too.
func (s *Seats[K]) Admit(of K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[of] >= s.Max-int(s.count.Load()) {
		return false
	}
	if s.of == nil {
		s.of = map[K]int{}
	}
	s.of[of]++
	s.count.Add(1)
	return true
}

// Dismiss counts a waiter out.
func (s *Seats[K]) Dismiss(of K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count.Add(-1)
	if s.of[of]--; s.of[of] == 0 {
		delete(s.of, of)
	}
}

// Empty reports whether nobody waits.
func (s *Seats[K]) Empty() bool { return s.count.Load() == 0 }

// Taken returns the number of occupied seats, and of their occupants.
func (s *Seats[K]) Taken() (seats, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.count.Load()), len(s.of)
}
