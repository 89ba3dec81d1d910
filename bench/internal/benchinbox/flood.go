package benchinbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// copies is how many senders deliver each activity of a flood at once.
const copies = 50

// flood are the answers to a flood.
type flood struct {
	ids               int
	taken, duplicates tally
	took              time.Duration
}

// run makes groups of senders deliver the same new activity at once, then the next one.
func (f *flood) run(ctx context.Context, senders []*sender, d time.Duration) {
	group := min(copies, len(senders))
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for len(senders) >= group {
		members := senders[:group]
		senders = senders[group:]
		wg.Go(func() {
			var own flood
			for n := 0; ctx.Err() == nil && (n == 0 || time.Since(start) < d); n++ {
				own.round(members)
			}
			mu.Lock()
			defer mu.Unlock()
			f.ids += own.ids
			f.taken.merge(&own.taken)
			f.duplicates.merge(&own.duplicates)
		})
	}
	wg.Wait()
	f.took = time.Since(start)
}

// round delivers one new activity by each of the senders. What is refused counts as a
// duplicate, because nearly all are.
func (f *flood) round(members []*sender) {
	f.ids++
	id := members[0].appendFresh(nil)
	var mu sync.Mutex
	var wg sync.WaitGroup
	fresh, unknown := 0, 0
	for _, s := range members {
		wg.Go(func() {
			got, status, took, err := s.deliver(id)
			if got == conflict {
				err = errors.New("the inbox took an activity for another one")
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil || status != http.StatusAccepted {
				unknown++
			}
			if got == taken {
				fresh++
				f.taken.add(status, took, err)
				return
			}
			f.duplicates.add(status, took, err)
		})
	}
	wg.Wait()
	// Whoever is refused may have been the first.
	if fresh > 1 || fresh == 0 && unknown == 0 {
		f.taken.add(0, 0, fmt.Errorf("an activity was taken %d times", fresh))
	}
}
