package pgstore

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/gather"
)

// ErrBusy is what a call returns that waited for its turn for longer than
// Options.AcquireTimeout, or beside which too many wait already. It has changed
// nothing.
var ErrBusy = fmt.Errorf("pgstore: no connection was free in time: %w", semel.ErrNotApplied)

// committer turns the writes of concurrent callers into few statements.
//
// A caller that is alone waits for nobody: it sends its write itself, which saves it
// the way to another goroutine and back. Writes that come while the server is working
// are sent together, by workers, when they are many or the server has answered. Of one
// identity one write is on its way at a time, so no batch waits for another of this
// process.
//
// A write that waits belongs to its caller: it is gone when that is.
type committer struct {
	conns   conns
	sql     *statements
	hasty   *statements // that wait for no lock
	changed func(id *digest)
	max     int
	workers int
	wait    time.Duration
	base    context.Context // ends some time after Close

	mu       sync.Mutex
	queue    list.List       // of *op, one of each identity: they may be taken
	busy     map[digest]*op  // of each identity that has writes, the first: it is on its way, or in the queue
	locked   map[digest]bool // identities that somebody else had locked for too long, when a write was sent last
	waiting  int             // writes that wait, in the queue or behind another of their identity
	bytes    int             // of those
	space    space           // for those
	batches  uint64          // taken so far
	writes   uint64          // in them
	inFlight int             // writes in batches that are on their way
	crowd    crowd
	lastTake time.Time // when the last batch was taken
	waking   bool      // wake will be called
	running  int       // who uses a connection
	wary     bool      // a write of a caller that was alone was not answered in time
	closed   bool
	active   sync.WaitGroup
}

// crowd is how many writers have come together of late.
type crowd int

// note takes note of a batch. It fades, for among large batches a small one says little.
func (c *crowd) note(n int) { *c = max(crowd(n), *c-*c/8-1) }

// several reports whether there has been more than one.
func (c crowd) several() bool { return c > 1 }

// apply makes one write. When ctx ends while it waits it is not made; when ctx ends
// later its result is unknown, for a batch that was sent is not called back.
func (c *committer) apply(ctx context.Context, o *op) error {
	alone, err := c.join(o)
	if err != nil {
		return err
	}
	if alone {
		return c.lead(ctx, o)
	}
	turn := time.NewTimer(c.wait)
	defer turn.Stop()
	for {
		select {
		case <-o.done:
			return o.err
		case <-ctx.Done():
			if c.leave(o) {
				return notApplied(ctx.Err())
			}
			return ctx.Err()
		case <-turn.C:
			if c.leave(o) {
				return ErrBusy
			}
		}
	}
}

// lead sends the write of a caller that is alone. When ctx ends first the connection
// is let go of, and with it the answer; the server goes on. Servers have few
// connections, so until they answer again workers wait for them, who let go of none.
func (c *committer) lead(ctx context.Context, o *op) error {
	defer c.active.Done()
	batch := []*op{o}
	c.send(ctx, batch)
	c.finish(batch)
	late := ctx.Err()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wary = late != nil
	c.running--
	c.hire()
	if o.err != nil && late != nil && !errors.Is(o.err, semel.ErrNotApplied) {
		return late
	}
	return o.err
}

// count takes note of a batch that is taken. The caller holds c.mu.
func (c *committer) count(n int) {
	c.inFlight += n
	c.crowd.note(n)
	c.lastTake = time.Now()
	c.batches++
	c.writes += uint64(n)
}

// slow is from when on a batch takes long, and others no longer wait to be many.
const slow = 5 * time.Millisecond

// fair is how many writes make up for the costs of a batch of their own.
const fair = 24

// worthwhile reports whether the queue should be sent now. While a batch is on its
// way, a second one starts when it would be as large, or large enough: small ones
// cost the server more than they gain. The caller holds c.mu.
func (c *committer) worthwhile() bool {
	return c.inFlight == 0 || c.queue.Len() >= min(c.inFlight, fair) || time.Since(c.lastTake) > slow
}

// hire starts a worker if there is work for it, now or as soon as the batches that are
// on their way take long. The caller holds c.mu.
func (c *committer) hire() {
	switch {
	case c.running == c.workers || c.queue.Len() == 0:
	case c.worthwhile():
		c.running++
		c.active.Go(c.work)
	case !c.waking:
		c.waking = true
		time.AfterFunc(slow-time.Since(c.lastTake), c.wake)
	}
}

// wake hires for writes that nothing else has happened after.
func (c *committer) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waking = false
	c.hire()
}

// work sends batches until there is nothing to send.
func (c *committer) work() {
	for {
		if c.crowded() {
			gather.Until(c.queueLen)
		}
		batch := c.take()
		if len(batch) == 0 {
			return
		}
		c.send(context.Background(), batch)
		c.finish(batch)
	}
}

// crowded reports whether there have been several callers of late. One that is alone
// would pay for waiting with threads that wake up and find nothing.
func (c *committer) crowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.crowd.several()
}

// take takes the next batch off the queue; none ends the worker.
func (c *committer) take() (batch []*op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue.Len() > 0 && c.worthwhile() {
		batch = c.pick()
		c.count(len(batch))
	} else {
		c.running-- // whoever is on the way takes what there is
	}
	c.hire() // for those of the other sort, or that are left
	return batch
}

// finish tells the callers and lets the next writes of their identities go.
func (c *committer) finish(batch []*op) {
	c.mu.Lock()
	c.inFlight -= len(batch)
	c.wary = c.wary && batch[0].err != nil
	for _, o := range batch {
		c.remember(o)
		c.release(o)
	}
	c.mu.Unlock()
	for _, o := range batch {
		if o.applied {
			c.changed(&o.id)
		}
		if o.done != nil {
			close(o.done)
		}
	}
}

// send makes the writes of a batch and gives each its result. Who waits for the batch
// may give it up by ending ctx.
func (c *committer) send(ctx context.Context, batch []*op) {
	// Locks are taken in the order of identities, so that stores in other processes
	// do not wait for each other in a circle. That is as long as the planner keeps
	// to the order of the parameters; where it does not, the server ends the circle,
	// and the batch is sent again.
	slices.SortFunc(batch, func(a, b *op) int { return slices.Compare(a.id[:], b.id[:]) })
	sql := c.sql
	if len(batch) == 1 && batch[0].apart {
		sql = c.hasty
	}
	c.make(ctx, sql, batch)
}

// make runs a batch. When the server refuses it because of a row, which rolls all of
// it back, its halves are sent, and theirs, so that one poisoned write costs the others
// time and nothing else. Whoever met a lock has waited for it by then.
func (c *committer) make(ctx context.Context, sql *statements, batch []*op) {
	err := c.run(ctx, sql, batch)
	switch {
	case err == nil:
	case len(batch) > 1 && rolledBackByRow(err):
		if metLock(err) {
			sql = c.hasty
		}
		half := len(batch) / 2
		c.make(ctx, sql, batch[:half])
		c.make(ctx, sql, batch[half:])
	default:
		// What a round of the batch has committed is settled, and keeps its result.
		for _, o := range unsettled(batch) {
			o.fail(fmt.Errorf("pgstore: apply: %w", err))
		}
	}
}

// run sends a batch on a connection of its own. Nothing calls it back: a commit
// that is cancelled while it waits for a standby is a commit that this server
// shows and no standby has.
func (c *committer) run(ctx context.Context, sql *statements, batch []*op) error {
	conn, err := c.conns.take()
	if err != nil {
		return notApplied(err) // of those that are not settled nothing is on its way
	}
	defer c.conns.giveBack(conn)
	pc := conn.Conn().PgConn()
	stop := whenDone(ctx, lineOf(pc).letGo)
	defer func() {
		if !stop() { // the answer came at the same time
			_ = pc.Close(c.base)
		}
	}()
	return repeat(c.base, func() error { return sql.send(context.Background(), pc, batch) })
}

// whenDone is [context.AfterFunc], without what that needs where ctx does it itself.
func whenDone(ctx context.Context, f func()) (stop func() bool) {
	if c, ok := ctx.(interface{ AfterFunc(func()) func() bool }); ok {
		return c.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// close refuses further writes, gives up those that wait, and returns when those
// that were sent have ended.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	for c.queue.Len() > 0 {
		o := c.queue.Front().Value.(*op)
		c.unwait(o)
		o.fail(errClosed)
		c.release(o)
		close(o.done)
	}
	c.mu.Unlock()
	c.active.Wait()
	c.conns.close()
}
