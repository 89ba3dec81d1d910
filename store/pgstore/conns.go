package pgstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// keepFor is how long a connection stays out of its pool at most, but for what it is
// used for then. What the pool does with those that are idle or old it does after it.
// It is less than a period of the [silence], which takes those that are out to be used.
const keepFor = time.Second

// conns are the connections that writes use. One that was used is kept for the next
// write: to give it back to the pool and take it out again costs a caller that is alone
// several microseconds. They may be used concurrently.
type conns struct {
	pool *pgxpool.Pool
	wait time.Duration   // for one to be free
	base context.Context // ends before letGo is called
	keep time.Duration   // for how long they are kept

	mu       sync.Mutex
	taken    map[*pgxpool.Conn]time.Time // all that are out of the pool, and since when
	free     []*pgxpool.Conn             // of them, those that nobody uses
	expiring bool                        // expire will be called
	closed   bool
}

// take is a connection that nobody else uses until it is given back.
func (c *conns) take() (*pgxpool.Conn, error) {
	c.mu.Lock()
	if last := len(c.free) - 1; last >= 0 {
		conn := c.free[last]
		c.free = c.free[:last]
		c.mu.Unlock()
		return conn, nil
	}
	c.mu.Unlock()
	conn, err := acquire(c.base, c.pool, c.wait)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken[conn] = time.Now()
	if c.base.Err() != nil {
		lineOf(conn.Conn().PgConn()).letGo() // as the others were
	}
	return conn, nil
}

// giveBack ends the use of a connection.
func (c *conns) giveBack(conn *pgxpool.Conn) {
	c.mu.Lock()
	keep := !c.closed && !conn.Conn().IsClosed() && time.Since(c.taken[conn]) < c.keep
	if keep {
		c.free = append(c.free, conn)
		if !c.expiring {
			c.expiring = true
			time.AfterFunc(c.keep, c.expire)
		}
	} else {
		delete(c.taken, conn)
	}
	c.mu.Unlock()
	if !keep {
		release(conn)
	}
}

// expire gives all back that are not in use. Those that are go back after it.
func (c *conns) expire() {
	c.mu.Lock()
	free := c.free
	c.free, c.expiring = nil, false
	for _, conn := range free {
		delete(c.taken, conn)
	}
	c.mu.Unlock()
	for _, conn := range free {
		release(conn)
	}
}

// letGo ends the calls over all connections with an error, as [line.letGo] does.
func (c *conns) letGo() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.taken {
		lineOf(conn.Conn().PgConn()).letGo()
	}
}

// close gives back what is not in use, and has the others given back after it.
func (c *conns) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.expire()
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
