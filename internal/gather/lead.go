package gather

import "context"

// lead sends the item of a caller who is alone, and who counts as a worker meanwhile.
func (q *Queue[T]) lead(ctx context.Context, item T) {
	batch, result := []T{item}, false
	// A panic isn't the end of this goroutine: what serves the caller may recover from it, and
	// others wait behind the item.
	defer func() {
		q.finish(batch, result)
		q.endLead(ctx.Err() != nil)
	}()
	q.Lead(ctx, batch)
	result = true
}

// endLead lets a worker go on with what has come meanwhile. A server may still be at work for a
// caller who has left at their deadline. So nobody else leads until a worker, who waits for the
// server, has ended a batch, or there could be ever more work that nobody waits for.
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
