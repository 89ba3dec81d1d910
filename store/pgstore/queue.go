package pgstore

import "container/list"

// space bounds the writes that wait. Those who wait for longer than
// Options.AcquireTimeout leave; this bounds what comes until then, while the server
// does not answer.
type space struct{ writes, bytes int }

// maxWaiting is more than are served in that time.
var maxWaiting = space{writes: 1 << 14, bytes: 64 << 20}

// maxBytes bounds a batch, for the server holds it in memory more than once.
const maxBytes = 4 << 20

// join queues a write, behind those of the same identity, or reports that its caller
// is alone, and sends it.
func (c *committer) join(o *op) (alone bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, errClosed
	}
	o.arrived = c.batches
	first := c.busy[o.id]
	if first == nil && c.running == 0 && c.queue.Len() == 0 && !c.crowd.several() && !c.wary {
		c.busy[o.id] = o
		c.running++
		c.active.Add(1)
		c.taking(o)
		c.count(1)
		return true, nil
	}
	if c.waiting >= c.space.writes || c.waiting > 0 && c.bytes+o.size() > c.space.bytes {
		return false, ErrBusy
	}
	o.done = make(chan struct{})
	if first != nil {
		if first.behind == nil {
			first.behind = list.New()
		}
		c.await(o, first.behind)
		return false, nil
	}
	c.busy[o.id] = o
	c.await(o, &c.queue)
	c.hire()
	return false, nil
}

// await has a write wait in a list. The caller holds c.mu.
func (c *committer) await(o *op, in *list.List) {
	o.in, o.place = in, in.PushBack(o)
	c.waiting++
	c.bytes += o.size()
}

// unwait ends the waiting of a write. The caller holds c.mu.
func (c *committer) unwait(o *op) {
	o.in.Remove(o.place)
	o.in, o.place = nil, nil
	c.waiting--
	c.bytes -= o.size()
}

// leave takes back a write that was not sent yet, and reports whether it could.
func (c *committer) leave(o *op) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.in == nil {
		return false
	}
	first := o.in == &c.queue
	c.unwait(o)
	if first {
		c.release(o)
		c.hire()
	}
	return true
}

// queueLen is how many writes wait to be taken.
func (c *committer) queueLen() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint64(c.queue.Len())
}

// pick takes writes off the queue, which has some. A write that meets somebody else's
// lock is sent by itself: a batch that it was in would be rolled back, and those that
// came with it would be sent again in more commits than one. The caller holds c.mu.
func (c *committer) pick() (batch []*op) {
	sort, creates := c.sort()
	bytes := 0
	for at := c.queue.Front(); at != nil && len(batch) < c.max && bytes < maxBytes; {
		o := at.Value.(*op)
		at = at.Next()
		apart := c.locked[o.id]
		if sort && o.creates() != creates || apart && len(batch) > 0 {
			continue
		}
		c.unwait(o)
		c.taking(o)
		bytes += o.size()
		if batch = append(batch, o); apart {
			break
		}
	}
	return batch
}

// taking takes note that a write will be sent. Whoever takes it releases it, once. The
// caller holds c.mu.
func (c *committer) taking(o *op) { o.taken, o.apart = c.batches+1, c.locked[o.id] }

// sorted is from how many writes on a batch is of one sort: either those that create
// records or those that change them. Each sort is a statement of its own, and half of
// what one costs the server is the same for one row and for many.
const sorted = 12

// patience is for how many batches a write waits that is not of the sort of the others.
const patience = 4

// sort reports whether the next batch is of one sort, and which: that of most writes,
// unless one has waited for long. The caller holds c.mu.
func (c *committer) sort() (sort, creates bool) {
	if c.queue.Len() < sorted {
		return false, false
	}
	if oldest := c.queue.Front().Value.(*op); c.batches-oldest.arrived > patience {
		return true, oldest.creates()
	}
	n := 0
	for at := c.queue.Front(); at != nil; at = at.Next() {
		if at.Value.(*op).creates() {
			n++
		}
	}
	return true, 2*n >= c.queue.Len()
}

// release lets the next write of an identity go. Whoever took o off the queue calls it
// once it is settled: without it no later write of the identity would ever be sent. The
// caller holds c.mu.
func (c *committer) release(o *op) {
	if c.busy[o.id] != o {
		panic("pgstore: a write is released that is not the first of its identity")
	}
	delete(c.busy, o.id)
	for o.behind != nil && o.behind.Len() > 0 {
		next := o.behind.Front().Value.(*op)
		c.unwait(next)
		switch {
		case c.closed:
			next.fail(errClosed)
		case !o.answers(next):
			next.behind, o.behind = o.behind, nil
			c.busy[o.id] = next
			c.await(next, &c.queue)
			return
		}
		close(next.done)
	}
}

// answers gives a write behind o of its identity the result that it would get, if that
// is known: what o has found is in its way as well, or the same lock. So a crowd of
// duplicates costs one row.
//
// This holds for a write only that was waiting when o was taken, hence before o was
// sent for the first time: then it might as well have been sent right behind it. What a
// later one would find may be newer.
func (o *op) answers(next *op) bool {
	switch {
	case next.arrived >= o.taken || !o.settled:
		return false
	case o.err == nil && next.write.Expect != o.current.Revision:
		next.refused(o.current, nil)
	case metLock(o.err):
		next.fail(o.err)
	default:
		return false
	}
	return true
}

// maxLocked bounds the memory for identities that were locked. To forget one costs a
// batch that is sent in parts.
const maxLocked = 1000

// remember takes note of whether a write that was sent has met somebody else's lock. The
// caller holds c.mu.
func (c *committer) remember(o *op) {
	if !metLock(o.err) {
		delete(c.locked, o.id)
		return
	}
	if len(c.locked) == maxLocked {
		clear(c.locked)
	}
	c.locked[o.id] = true
}
