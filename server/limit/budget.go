// Package limit bounds what callers can make a server hold at one time: bytes of
// requests and captured answers, in total and per tenant, and connections. All of
// it refuses or waits at once; nothing queues bytes.
package limit

import (
	"fmt"
	"sync"
)

// Budget counts bytes in flight, in total and per tenant. All methods may be called
// concurrently.
//
// It remembers only tenants that have bytes in flight, so its size is bounded by
// the number of requests at one time.
type Budget struct {
	total, tenant int64 // limits

	mu      sync.Mutex
	used    int64
	tenants map[string]int64
}

// NewBudget makes a budget of so many bytes in total, and for each tenant. Zero
// means no limit.
func NewBudget(total, tenant int64) (*Budget, error) {
	if total < 0 || tenant < 0 {
		return nil, fmt.Errorf("limit: a budget of %d bytes in total and %d per tenant", total, tenant)
	}
	return &Budget{total: total, tenant: tenant, tenants: map[string]int64{}}, nil
}

// Acquire takes n bytes for a tenant, without waiting. If ok is false nothing was
// taken and release is nil. Otherwise release gives the bytes back; calling it
// again does nothing.
func (b *Budget) Acquire(tenant string, n int64) (release func(), ok bool) {
	h := &hold{budget: b, tenant: tenant}
	if h.grow(n) != nil {
		return nil, false
	}
	return h.release, true
}

// InFlight tells how many bytes are taken, and by how many tenants.
func (b *Budget) InFlight() (bytes int64, tenants int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, len(b.tenants)
}

// ExhaustedError is why bytes could not be taken.
type ExhaustedError struct {
	// Tenant is set if it is the tenant's budget that is used up, not the total.
	Tenant bool
	// Never is set if the bytes are more than the whole budget, so that asking
	// again is of no use.
	Never bool
	// Limit is the budget, in bytes.
	Limit int64
}

// Error names the budget.
func (e *ExhaustedError) Error() string {
	whose := "server's"
	if e.Tenant {
		whose = "tenant's"
	}
	return fmt.Sprintf("the %s budget of %d bytes in flight is used up", whose, e.Limit)
}

// hold is what one request has taken.
type hold struct {
	budget *Budget
	tenant string
	bytes  int64 // guarded by budget.mu
	closed bool  // guarded by budget.mu
}

// grow takes n bytes more, or none and returns an [*ExhaustedError]. After release
// it takes nothing.
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
	// Compared by subtraction, since the sum may not fit.
	own := b.tenants[h.tenant]
	if b.total > 0 && n > b.total-b.used {
		return &ExhaustedError{Limit: b.total, Never: n > b.total-h.bytes}
	}
	if b.tenant > 0 && n > b.tenant-own {
		return &ExhaustedError{Limit: b.tenant, Never: n > b.tenant-h.bytes, Tenant: true}
	}
	b.used += n
	b.tenants[h.tenant] = own + n
	h.bytes += n
	return nil
}

// release gives back all of it.
func (h *hold) release() {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	h.closed = true
	if h.bytes == 0 {
		return
	}
	b.used -= h.bytes
	if b.tenants[h.tenant] -= h.bytes; b.tenants[h.tenant] == 0 {
		delete(b.tenants, h.tenant)
	}
	h.bytes = 0
}
