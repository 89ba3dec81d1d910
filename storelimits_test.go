package semel

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Each call ends at its own limit, whichever others have begun or ended meanwhile, also
// after a time without any.
func TestEachStoreCallEndsAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Second
		limits := &storeLimits{limit: limit}
		begin := func() *storeCall {
			c := &storeCall{Context: t.Context(), limits: limits}
			c.Done()
			return c
		}
		for range 2 {
			start := time.Now()
			var calls []*storeCall
			for range 5 {
				calls = append(calls, begin())
				<-time.After(limit / 10)
			}
			for _, i := range []int{0, 2, 4} { // the first, one between, the last
				calls[i].end()
			}
			for _, i := range []int{1, 3} {
				<-calls[i].Done()
				if d, want := time.Since(start), limit+time.Duration(i)*limit/10; d != want || !errors.Is(calls[i].Err(), context.DeadlineExceeded) {
					t.Errorf("call %d ends after %v, want %v: %v", i, d, want, calls[i].Err())
				}
			}
			for _, i := range []int{0, 2, 4} {
				if !errors.Is(calls[i].Err(), context.Canceled) {
					t.Errorf("call %d, which was over, says %v", i, calls[i].Err())
				}
			}
			if limits.first != nil || limits.last != nil {
				t.Error("calls are left")
			}
			<-time.After(10 * limit)
			if limits.ticking {
				t.Error("the timer runs for nobody")
			}
		}
	})
}
