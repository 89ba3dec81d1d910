package gather

import "context"

// lead sends the item of a lone caller, who counts as a worker meanwhile.
func (q *Queue[T]) lead(ctx context.Context, item T) {
	// Even after a panic, from which the caller's server may recover: others wait behind the
	// item. Whatever its result, it answers none of them, because they came later.
	defer func() {
		q.finish([]T{item})
		q.endLead(ctx.Err() != nil)
	}()
	q.Lead(ctx, item)
}

// endLead lets a worker continue with the items that have come meanwhile. The server may still
// be working for a caller who left at their deadline. So nobody else leads until a worker,
// which waits for the server, has ended a batch: otherwise more and more work could pile up
// without anybody waiting for it.
func (q *Queue[T]) endLead(late bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	q.late = late
	if len(q.waiting) > 0 {
		q.startWorker()
	}
	q.Work.Done()
}
