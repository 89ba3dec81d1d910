package semel

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestStoreCallsTellThoseWhoWaitForTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		called := map[string]bool{}
		after := func(ctx context.Context, name string) func() bool {
			return context.AfterFunc(ctx, func() { called[name] = true })
		}
		late := &storeCall{Context: t.Context(), limits: &storeLimits{limit: time.Second}}
		after(late, "late")
		if !after(late, "stopped")() {
			t.Error("a function can't be taken back before the end")
		}
		derived, cancel := context.WithTimeout(late, time.Minute)
		defer cancel()
		<-derived.Done()
		synctest.Wait()
		if !called["late"] || called["stopped"] || !errors.Is(derived.Err(), context.DeadlineExceeded) {
			t.Errorf("after the limit %v was called, and a context made of it says %v", called, derived.Err())
		}
		if stop := after(late, "too late"); stop() {
			t.Error("after the end a function is taken back")
		}
		synctest.Wait()
		if !called["too late"] {
			t.Error("after the end a function is not called at once")
		}

		inTime := &storeCall{Context: t.Context(), limits: &storeLimits{limit: time.Second}}
		stop := after(inTime, "ended")
		inTime.end()
		synctest.Wait()
		if !called["ended"] || stop() || !errors.Is(inTime.Err(), context.Canceled) {
			t.Errorf("at the end of a call %v was called, and it says %v", called, inTime.Err())
		}

		for name, begin := range map[string]func(*storeCall){
			"nothing was asked of": func(*storeCall) {},
			"a function follows":   func(c *storeCall) { after(c, "first") },
			"the limit was read":   func(c *storeCall) { c.Deadline() },
		} {
			c := &storeCall{Context: t.Context(), limits: &storeLimits{limit: time.Second}}
			begin(c)
			c.end()
			select {
			case <-c.Done():
			default:
				t.Errorf("a call that %s does not say that it is over", name)
			}
		}
	})
}
