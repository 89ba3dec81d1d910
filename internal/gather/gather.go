// Package gather lets concurrent callers become many before a batch of their work is
// taken.
package gather

import "runtime"

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
