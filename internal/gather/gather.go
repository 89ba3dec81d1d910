// Package gather lets concurrent callers become many before a batch of their work is
// taken.
package gather

import "runtime"

// Crowd is how many callers have come together of late. It is for use under the lock of
// who keeps it.
type Crowd int

// Note takes note of a batch. It fades, for among large batches a small one says little.
func (c *Crowd) Note(n int) { *c = max(Crowd(n), *c-*c/8-1) }

// Several reports whether there has been more than one.
func (c Crowd) Several() bool { return c > 1 }

// most is how often others may run, or who has joined would wait for too long.
const most = 8

// Until lets callers that can run now join, until none of them does: joined counts who
// has. After a batch many are woken at once, and a batch for each of the first few would
// cost more than it gains. Once is not enough: some of them are still in the queue of
// the other processors.
func Until(joined func() uint64) {
	for range most {
		before := joined()
		runtime.Gosched()
		if joined() == before {
			return
		}
	}
}
