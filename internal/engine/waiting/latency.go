package waiting

import (
	"sync/atomic"
	"time"
)

// MinRetryAfter is the shortest pause before asking again.
const MinRetryAfter = 50 * time.Millisecond

// Latency is how long executions of one operation take, as a moving average.
type Latency struct {
	nanos atomic.Int64
}

// Observe takes the duration of an execution into account.
func (l *Latency) Observe(d time.Duration) {
	old := l.nanos.Load()
	if old == 0 {
		l.nanos.CompareAndSwap(0, max(int64(d), 1))
		return
	}
	// A lost race loses one observation, which an average can bear.
	l.nanos.CompareAndSwap(old, old+(int64(d)-old)/8)
}

// RetryAfter returns when a duplicate may expect the outcome: the rest of a usual execution,
// after running for age. If no execution was observed yet, or this one takes longer than usual,
// the pause grows with its age. It never exceeds the rest of the lease.
func (l *Latency) RetryAfter(age, lease time.Duration) time.Duration {
	usual := time.Duration(l.nanos.Load())
	left := usual - age
	if left < MinRetryAfter {
		left = max(age/2, MinRetryAfter)
	}
	return max(min(left, lease), MinRetryAfter)
}
