package renewal

import (
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Leases are renewed in the order in which they began, whatever the order in which they came.
func TestLeasesAreInTheOrderInWhichTheyBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		fired := map[string]time.Duration{}
		l := Leases[string]{Elapsed: func() time.Duration { return time.Since(start) }, Period: 100 * time.Second}
		l.Renew = func(name string, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			fired[name] = time.Since(start)
		}
		leases := map[string]*Lease[string]{}
		for _, x := range []struct {
			name  string
			since time.Duration
		}{{"third", 30 * time.Second}, {"second", 20 * time.Second}, {"gone", 25 * time.Second}, {"fourth", 40 * time.Second}, {"first", 10 * time.Second}} {
			leases[x.name] = new(Lease[string])
			l.Add(leases[x.name], x.name, x.since)
		}
		l.Remove(leases["gone"])
		l.Remove(leases["gone"]) // it isn't in any more
		var order []string
		l.mu.Lock()
		for x := l.first; x != nil; x = x.next {
			order = append(order, x.of)
			if x.next == nil && l.last != x || x.next != nil && x.next.prev != x {
				t.Errorf("the list is broken at %s", x.of)
			}
		}
		l.mu.Unlock()
		if len(order) != 4 || order[0] != "first" || order[1] != "second" || order[2] != "third" || order[3] != "fourth" {
			t.Errorf("the order is %q", order)
		}
		// The timer is that of the first, although others were there before it.
		<-time.After(115 * time.Second)
		l.Add(leases["first"], "first", 115*time.Second) // renewed
		<-time.After(5 * time.Minute)
		synctest.Wait()
		want := map[string]time.Duration{"first": 215 * time.Second, "second": 120 * time.Second, "third": 130 * time.Second, "fourth": 140 * time.Second}
		mu.Lock()
		defer mu.Unlock()
		if !maps.Equal(fired, want) {
			t.Errorf("renewed at %v, want %v", fired, want)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.first != nil || l.last != nil || l.armed {
			t.Error("the list isn't empty in the end")
		}
	})
}
