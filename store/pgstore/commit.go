package pgstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/gather"
)

// ErrBusy is what a call returns that waited for its turn for longer than
// Options.AcquireTimeout. It has changed nothing.
var ErrBusy = fmt.Errorf("pgstore: no connection was free in time: %w", semel.ErrNotApplied)

// committer turns the writes of concurrent callers into few statements.
//
// A caller that is alone waits for nobody: it sends its write itself, which saves it
// the way to another goroutine and back. Writes that come while the server is working
// are sent together, by workers, when they are many or the server has answered. Of one
// identity one write is on its way at a time, so no batch waits for another of this
// process.
type committer struct {
	conns   conns
	sql     *statements
	changed func(id *digest)
	max     int
	workers int
	wait    time.Duration
	base    context.Context // ends some time after Close

	mu       sync.Mutex
	queue    []*op          // may be taken
	busy     map[digest]*op // the last write of each identity that has one
	batches  uint64         // taken so far
	writes   uint64         // in them
	inFlight int            // writes in batches that are on their way
	crowd    crowd
	lastTake time.Time // when the last batch was taken
	running  int       // who uses a connection
	wary     bool      // a write of a caller that was alone was not answered in time
	news     bool      // the last identity that such a caller wanted to be new was new
	closed   bool
	active   sync.WaitGroup
}

// crowd is how many writers have come together of late.
type crowd int

// note takes note of a batch. It fades, for among large batches a small one says little.
func (c *crowd) note(n int) { *c = max(crowd(n), *c-*c/8-1) }

// several reports whether there has been more than one.
func (c crowd) several() bool { return c > 1 }

// maxBytes bounds a batch, for the server holds it in memory more than once.
const maxBytes = 4 << 20

// apply makes one write. When ctx ends first its result is unknown: a batch that
// was sent is not called back.
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
			c.leave(o)
			return ctx.Err()
		case <-turn.C:
			if c.leave(o) {
				return ErrBusy
			}
		}
	}
}

// join queues a write, behind those of the same identity, or reports that its caller
// is alone, and sends it.
func (c *committer) join(o *op) (alone bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, errClosed
	}
	o.arrived = c.batches
	last := c.busy[o.id]
	c.busy[o.id] = o
	if last == nil && c.running == 0 && len(c.queue) == 0 && !c.crowd.several() && !c.wary {
		c.running++
		c.active.Add(1)
		o.taken, o.news = c.batches+1, c.news
		c.count(1)
		return true, nil
	}
	o.done = make(chan struct{})
	if last != nil {
		last.next = o
		return false, nil
	}
	c.queue = append(c.queue, o)
	c.hire()
	return false, nil
}

// hire starts a worker if there is work for it. The caller holds c.mu.
func (c *committer) hire() {
	if c.running < c.workers && len(c.queue) > 0 && c.worthwhile() {
		c.running++
		c.active.Go(c.work)
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
	if c.wary = late != nil; o.creates() {
		c.news = o.applied
	}
	c.running--
	c.hire()
	if o.err != nil && late != nil {
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

// leave takes back a write that was not sent yet, and reports whether it could.
func (c *committer) leave(o *op) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.taken == 0 {
		o.gone = true
	}
	return o.gone
}

// slow is from when on a batch takes long, and others no longer wait to be many.
const slow = 5 * time.Millisecond

// fair is how many writes make up for the costs of a batch of their own.
const fair = 24

// worthwhile reports whether the queue should be sent now. While a batch is on its
// way, a second one starts when it would be as large, or large enough: small ones
// cost the server more than they gain. The caller holds c.mu.
func (c *committer) worthwhile() bool {
	return c.inFlight == 0 || len(c.queue) >= min(c.inFlight, fair) || time.Since(c.lastTake) > slow
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

// queueLen is how many writes wait to be taken.
func (c *committer) queueLen() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint64(len(c.queue))
}

// take takes the next batch off the queue; none ends the worker.
func (c *committer) take() (batch []*op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.worthwhile() {
		for len(batch) == 0 && len(c.queue) > 0 { // all of one sort may be gone
			batch = c.pick()
		}
	}
	if len(batch) == 0 {
		c.running-- // whoever is on the way takes what there is
		return nil
	}
	c.count(len(batch))
	c.hire() // for those of the other sort
	return batch
}

// pick takes writes off the queue. The caller holds c.mu.
func (c *committer) pick() (batch []*op) {
	sort, creates := c.sort()
	bytes, queue := 0, c.queue
	rest := queue[:0]
	c.queue = nil // release may add to it
	for _, o := range queue {
		switch {
		case o.gone:
			c.release(o)
		case sort && o.creates() != creates || len(batch) == c.max || bytes >= maxBytes:
			rest = append(rest, o)
		default:
			o.taken = c.batches + 1
			bytes += o.size()
			batch = append(batch, o)
		}
	}
	clear(queue[len(rest):])
	c.queue = append(rest, c.queue...)
	return batch
}

// sorted is from how many writes on a batch is of one sort: either those that create
// records or those that change them. Each sort is a statement of its own, and half of
// what one costs the server is the same for one row and for many.
const sorted = 12

// patience is for how many batches a write waits that is not of the sort of the others.
const patience = 4

// sort reports whether the next batch is of one sort, and which: that of most writes,
// unless one has waited for long. The caller holds c.mu.
func (c *committer) sort() (sort, creates bool) {
	if len(c.queue) < sorted {
		return false, false
	}
	if oldest := c.queue[0]; c.batches-oldest.arrived > patience {
		return true, oldest.creates()
	}
	n := 0
	for _, o := range c.queue {
		if o.creates() {
			n++
		}
	}
	return true, 2*n >= len(c.queue)
}

// finish tells the callers and lets the next writes of their identities go.
func (c *committer) finish(batch []*op) {
	c.mu.Lock()
	c.inFlight -= len(batch)
	c.wary = c.wary && batch[0].err != nil
	for _, o := range batch {
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

// release lets the next write of an identity go. Writes that were waiting already
// when o was sent, and that expect something else than what is stored since, are
// answered by what o has found: had they been sent right behind it they would have
// found the same. So a crowd of duplicates costs one row. The caller holds c.mu.
func (c *committer) release(o *op) {
	for next := o.next; next != nil; next = next.next {
		switch {
		case next.gone:
			continue
		case c.closed:
			next.err = errClosed
		case o.settled && o.err == nil && next.arrived < o.taken && next.write.Expect != o.current.Revision:
			next.refused(o.current)
		default:
			c.queue = append(c.queue, next)
			return
		}
		next.taken = o.taken
		close(next.done)
	}
	delete(c.busy, o.id)
}

// send makes the writes of a batch and gives each its result. When the server
// refuses the batch because of a row, which rolls all of it back, each is sent by
// itself, so that one poisoned write costs the others time and nothing else. Who waits
// for the batch may give it up by ending ctx.
func (c *committer) send(ctx context.Context, batch []*op) {
	// Locks are taken in the order of identities, so that stores in other
	// processes do not wait for each other in a circle.
	slices.SortFunc(batch, func(a, b *op) int { return slices.Compare(a.id[:], b.id[:]) })
	err := c.run(ctx, batch)
	if err == nil {
		return
	}
	if len(batch) > 1 && rolledBackByRow(err) {
		for i := range batch {
			c.send(ctx, batch[i:i+1])
		}
		return
	}
	for _, o := range batch {
		o.current, o.applied, o.settled, o.err = nil, false, false, fmt.Errorf("pgstore: apply: %w", err)
	}
}

// run sends a batch on a connection of its own. Nothing calls it back: a commit
// that is cancelled while it waits for a standby is a commit that this server
// shows and no standby has.
func (c *committer) run(ctx context.Context, batch []*op) error {
	conn, err := c.conns.take()
	if err != nil {
		return err
	}
	defer c.conns.giveBack(conn)
	pc := conn.Conn().PgConn()
	stop := whenDone(ctx, lineOf(pc).letGo)
	defer func() {
		if !stop() { // the answer came at the same time
			_ = pc.Close(c.base)
		}
	}()
	return repeat(c.base, func() error { return c.sql.send(context.Background(), pc, batch) })
}

// whenDone is [context.AfterFunc], without what that needs where ctx does it itself.
func whenDone(ctx context.Context, f func()) (stop func() bool) {
	if c, ok := ctx.(interface{ AfterFunc(func()) func() bool }); ok {
		return c.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// acquire takes a connection out of a pool, within a time, and has it watched until
// it is given back by release.
func acquire(ctx context.Context, pool *pgxpool.Pool, wait time.Duration) (*pgxpool.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn, err := pool.Acquire(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return nil, err
	}
	if s := watcherOf(conn.Conn()); s != nil {
		s.take(conn.Conn())
	}
	return conn, nil
}

// release gives a connection back to its pool, which closes one that is broken.
func release(conn *pgxpool.Conn) {
	if s := watcherOf(conn.Conn()); s != nil {
		s.free(conn.Conn())
	}
	conn.Release()
}

// close refuses further writes, gives up those that wait, and returns when those
// that were sent have ended.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	waiting := c.queue
	c.queue = nil
	for _, o := range waiting {
		o.err = errClosed
		o.taken = c.batches + 1
		c.release(o)
		close(o.done)
	}
	c.mu.Unlock()
	c.active.Wait()
	c.conns.close()
}
