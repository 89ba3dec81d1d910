package semel

import (
	"testing"
	"testing/synctest"
	"time"
)

// Leases are renewed in the order in which they began, whatever the order in which the
// store has answered.
func TestLeasesAreInTheOrderInWhichTheyBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{start: time.Now()}
		e.done, e.stop = t.Context(), func() {}
		op := e.newOperation(Operation{Name: "op", Lease: 300 * time.Second})
		fired := map[string]time.Duration{}
		names := map[*Attempt]string{}
		for _, x := range []struct {
			name  string
			since time.Duration
		}{{"third", 30 * time.Second}, {"second", 20 * time.Second}, {"fourth", 40 * time.Second}, {"first", 10 * time.Second}} {
			a := &Attempt{op: op}
			names[a] = x.name
			op.leases.add(a, x.since)
		}
		var order []string
		for a := op.leases.first; a != nil; a = a.lease.next {
			order = append(order, names[a])
			if a.lease.next == nil && op.leases.last != a || a.lease.next != nil && a.lease.next.lease.prev != a {
				t.Fatalf("the list is broken at %s", names[a])
			}
		}
		if len(order) != 4 || order[0] != "first" || order[1] != "second" || order[2] != "third" || order[3] != "fourth" {
			t.Errorf("the order is %q", order)
		}
		// The timer is that of the first, although others were there before it. An attempt
		// that has lost its lease already is taken out, and not renewed.
		for a := range names {
			a.parent = t.Context()
			a.ended = evComplete
			a.handler.stop(nil)
		}
		for range 60 {
			<-time.After(5 * time.Second)
			synctest.Wait()
			op.leases.mu.Lock()
			left := map[*Attempt]bool{}
			for a := op.leases.first; a != nil; a = a.lease.next {
				left[a] = true
			}
			op.leases.mu.Unlock()
			for a, name := range names {
				if _, known := fired[name]; !known && !left[a] {
					fired[name] = time.Since(e.start)
				}
			}
		}
		for name, want := range map[string]time.Duration{"first": 110 * time.Second, "second": 120 * time.Second, "third": 130 * time.Second, "fourth": 140 * time.Second} {
			if fired[name] != want {
				t.Errorf("%s is renewed after %v, want %v", name, fired[name], want)
			}
		}
	})
}
