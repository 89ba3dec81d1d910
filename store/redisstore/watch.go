package redisstore

import (
	"context"
	"time"

	"github.com/semelhq/semel"
)

// lookPause is how often a waiting delivery checks for other processes' changes; see
// BenchmarkWaiting.
const lookPause = 100 * time.Millisecond

// Watch is [store.Watcher.Watch]. It never asks the server: the channel receives ten times a
// second, whether or not the record has changed, and the engine then reads the record. All
// deliveries of an engine that wait for the same record share one watch, so each such record
// costs ten small reads a second, and deliveries wait for at most MaxWaiters of semel.Options
// records at a time. No more than maxAsks reads are in flight, so if a server can't keep up,
// each comes later. Outcomes of the same process wake them without a watch.
func (s *Store) Watch(context.Context, semel.ID) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	life, stop := context.WithCancel(s.life)
	if s.enter() != nil {
		return ch, stop // the engine gets the error when it reads
	}
	defer s.leave()
	s.work.Go(func() {
		tick := time.NewTicker(lookPause)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-life.Done():
				return
			}
			select {
			case ch <- struct{}{}:
			default: // a notice is waiting already
			}
		}
	})
	return ch, stop
}
