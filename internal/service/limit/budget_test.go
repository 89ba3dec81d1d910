package limit_test

import (
	"errors"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/internal/service/limit"
)

func newBudget(t testing.TB, total, tenant int64) *limit.Budget {
	t.Helper()
	b := limit.NewBudget(limit.Bounds{Total: total, Tenant: tenant})
	return b
}

func wantInFlight(t *testing.T, b *limit.Budget, bytes int64, tenants int) {
	t.Helper()
	if gotBytes, gotTenants := b.InFlight(); gotBytes != bytes || gotTenants != tenants {
		t.Errorf("%d bytes of %d tenants in flight, want %d of %d", gotBytes, gotTenants, bytes, tenants)
	}
}

func TestBudget(t *testing.T) {
	acquire := func(t *testing.T, b *limit.Budget, tenant string, n int64, want bool) func() {
		t.Helper()
		release, ok := b.Acquire(limit.Caller{Tenant: tenant}, n)
		if ok != want || (release != nil) != want {
			t.Fatalf("%d bytes for %s: %v, want %v", n, tenant, ok, want)
		}
		return release
	}
	t.Run("a tenant gets its share to the byte, and others theirs", func(t *testing.T) {
		b := newBudget(t, 100, 60)
		first := acquire(t, b, "a", 60, true)
		acquire(t, b, "a", 1, false)
		acquire(t, b, "b", 41, false)
		second := acquire(t, b, "b", 40, true)
		acquire(t, b, "c", 1, false)
		wantInFlight(t, b, 100, 2)
		first()
		wantInFlight(t, b, 40, 1)
		acquire(t, b, "c", 60, true)()
		second()
		wantInFlight(t, b, 0, 0)
	})
	t.Run("a principal gets its share of the tenant's, and others of the tenant theirs", func(t *testing.T) {
		b := limit.NewBudget(limit.Bounds{Total: 100, Tenant: 60, Principal: 40})
		take := func(tenant, principal string, n int64, want bool) func() {
			t.Helper()
			release, ok := b.Acquire(limit.Caller{Tenant: tenant, Principal: principal}, n)
			if ok != want {
				t.Fatalf("%d bytes for %s of %s: %v", n, principal, tenant, ok)
			}
			return release
		}
		first := take("a", "ann", 40, true)
		take("a", "ann", 1, false)
		take("a", "bob", 21, false)
		take("a", "bob", 20, true)
		take("b", "ann", 40, true)
		first()
		take("a", "bob", 21, false)
		take("c", "ann", 40, true)()
	})
	t.Run("what is given back twice counts once", func(t *testing.T) {
		b := newBudget(t, 100, 100)
		release := acquire(t, b, "a", 10, true)
		acquire(t, b, "a", 20, true)
		release()
		release()
		wantInFlight(t, b, 20, 1)
	})
	t.Run("nothing costs nothing, and is not remembered", func(t *testing.T) {
		b := newBudget(t, 10, 10)
		acquire(t, b, "a", 10, true)
		acquire(t, b, "b", 0, true)
		wantInFlight(t, b, 10, 1)
	})
	t.Run("zero means no limit, and sums do not overflow", func(t *testing.T) {
		acquire(t, newBudget(t, 0, 0), "a", math.MaxInt64, true)
		b := newBudget(t, 100, 0)
		acquire(t, b, "a", 1, true)
		acquire(t, b, "a", math.MaxInt64, false)
		acquire(t, b, "b", 99, true)
		b = newBudget(t, 0, 100)
		acquire(t, b, "a", 1, true)
		acquire(t, b, "a", math.MaxInt64, false)
	})
	t.Run("the error names whose budget it is", func(t *testing.T) {
		var err error = &limit.ExhaustedError{Whose: "tenant", Limit: 5}
		if e, ok := errors.AsType[*limit.ExhaustedError](err); !ok || e.Error() != "the tenant's budget of 5 bytes in flight is used up" {
			t.Error(err)
		}
	})
}

func TestBudgetUnderConcurrency(t *testing.T) {
	const total, share, size, tenants = 1000, 300, 70, 8
	b := newBudget(t, total, share)
	var inFlight [tenants]atomic.Int64
	var sum, taken, refused atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			tenant := g % tenants
			for range 2000 {
				release, ok := b.Acquire(limit.Caller{Tenant: strconv.Itoa(tenant)}, size)
				if !ok {
					refused.Add(1)
					continue
				}
				taken.Add(1)
				if own, all := inFlight[tenant].Add(size), sum.Add(size); own > share || all > total {
					t.Errorf("%d bytes of one tenant, %d in total", own, all)
				}
				inFlight[tenant].Add(-size)
				sum.Add(-size)
				release()
			}
		})
	}
	wg.Wait()
	if taken.Load() == 0 || taken.Load()+refused.Load() != 16*2000 {
		t.Error(taken.Load(), refused.Load())
	}
	wantInFlight(t, b, 0, 0)
}

func BenchmarkAcquire(bm *testing.B) {
	b := newBudget(bm, 1<<30, 1<<28)
	bm.ReportAllocs()
	bm.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if release, ok := b.Acquire(limit.Caller{Tenant: "acme", Principal: "ann"}, 100); ok {
				release()
			}
		}
	})
}
