// Package limit bounds what callers can make a server hold at one time: the bytes of
// their requests, the number of requests and connections, and how long somebody may send
// or read next to nothing. It refuses or waits at once, and never queues bytes.
package limit

import (
	"fmt"
	"sync"
)

// Bounds are how many bytes may be in flight. Zero means no bound.
type Bounds struct {
	Total     int64 // of all
	Tenant    int64 // of each tenant
	Principal int64 // of each principal of a tenant
}

// Caller pays for the bytes. A caller who can choose these values can use up other callers'
// shares, so they must be verified, or be the caller's address.
type Caller struct {
	Tenant    string
	Principal string
}

// Budget counts bytes in flight, in total, per tenant and per principal. All methods
// may be called concurrently.
//
// It remembers only callers that have bytes in flight, so its size is bounded by
// the number of requests at one time.
type Budget struct {
	bounds Bounds

	mu   sync.Mutex
	used map[share]int64
}

// share is a part of the budget: that of the server, of a tenant or of a caller.
type share struct {
	whose string
	of    Caller
	bound int64
}

func (b *Budget) shares(c Caller) [3]share {
	return [3]share{
		{"server", Caller{}, b.bounds.Total},
		{"tenant", Caller{Tenant: c.Tenant}, b.bounds.Tenant},
		{"caller", c, b.bounds.Principal},
	}
}

// NewBudget makes a budget.
func NewBudget(bounds Bounds) *Budget { return &Budget{bounds: bounds, used: map[share]int64{}} }

// ExhaustedError says why bytes could not be taken.
type ExhaustedError struct {
	// The budget of the "server", the "tenant" or the "caller" is used up.
	Whose string
	// Never is set if the bytes are more than the whole budget, so that asking again is
	// pointless.
	Never bool
	// Limit is the budget, in bytes.
	Limit int64
}

// Error names the budget.
func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("the %s's budget of %d bytes in flight is used up", e.Whose, e.Limit)
}

type hold struct {
	budget *Budget
	caller Caller
	bytes  int64 // guarded by budget.mu
	closed bool  // guarded by budget.mu
}

// grow takes n more bytes, or none and returns an [*ExhaustedError]. After release it
// takes nothing.
func (h *hold) grow(n int64) error {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 0 {
		panic(fmt.Sprintf("limit: %d bytes taken", n))
	}
	if h.closed || n == 0 {
		return nil
	}
	shares := b.shares(h.caller)
	for _, s := range shares {
		// Compared by subtraction, since the sum may not fit.
		if s.bound > 0 && n > s.bound-b.used[s] {
			return &ExhaustedError{Whose: s.whose, Limit: s.bound, Never: n > s.bound-h.bytes}
		}
	}
	for _, s := range shares {
		b.used[s] += n
	}
	h.bytes += n
	return nil
}

// fits returns nil if n bytes are no more than any whole budget.
func (b *Budget) fits(n int64) error {
	for _, s := range b.shares(Caller{}) {
		if s.bound > 0 && n > s.bound {
			return &ExhaustedError{Whose: "server", Limit: s.bound, Never: true}
		}
	}
	return nil
}

func (h *hold) release() {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	h.closed = true
	for _, s := range b.shares(h.caller) {
		if b.used[s] -= h.bytes; b.used[s] == 0 {
			delete(b.used, s)
		}
	}
	h.bytes = 0
}
