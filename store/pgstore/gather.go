package pgstore

import (
	"container/list"
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel"
)

// gatherer lets concurrent Gets share statements, as the committer does for writes.
// Many deliveries that wait for outcomes look at the same time.
type gatherer struct {
	s    *Store
	base context.Context

	mu      sync.Mutex
	queue   list.List // of *look
	running int
	closed  bool
	active  sync.WaitGroup
}

// look is one Get on its way. Like a write that waits, one that waits belongs to its
// caller.
type look struct {
	id    digest
	rec   semel.Record
	err   error
	done  chan struct{}
	place *list.Element // in the queue; nil: it does not wait
}

const (
	// lookers is how many statements are on their way at a time. The clock and the
	// rest have the other connections.
	lookers  = 2
	maxLooks = 256
)

// Get is [semel.Store.Get].
func (s *Store) Get(ctx context.Context, id semel.ID) (semel.Record, error) {
	if err := s.usable(ctx); err != nil {
		return semel.Record{}, err
	}
	l := &look{id: id.Digest(), done: make(chan struct{})}
	if err := s.looks.join(l); err != nil {
		return semel.Record{}, err
	}
	turn := time.NewTimer(s.opts.AcquireTimeout)
	defer turn.Stop()
	for {
		select {
		case <-l.done:
			return l.rec, l.err
		case <-ctx.Done():
			s.looks.leave(l)
			return semel.Record{}, ctx.Err()
		case <-turn.C:
			if s.looks.leave(l) {
				return semel.Record{}, ErrBusy
			}
		}
	}
}

func (g *gatherer) join(l *look) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errClosed
	}
	if g.queue.Len() >= g.s.opts.space.writes {
		return ErrBusy
	}
	l.place = g.queue.PushBack(l)
	if g.running < lookers {
		g.running++
		g.active.Go(g.work)
	}
	return nil
}

// leave takes back a Get that still waits for its turn, and reports whether it does.
func (g *gatherer) leave(l *look) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l.place == nil {
		return false
	}
	g.pop(l)
	return true
}

// pop takes a Get off the queue. The caller holds g.mu.
func (g *gatherer) pop(l *look) {
	g.queue.Remove(l.place)
	l.place = nil
}

func (g *gatherer) work() {
	for {
		runtime.Gosched() // callers that can run now join
		batch := g.take()
		if len(batch) == 0 {
			return
		}
		g.answer(batch)
	}
}

func (g *gatherer) take() []*look {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(g.queue.Len(), maxLooks)
	if n == 0 {
		g.running--
		return nil
	}
	batch := make([]*look, n)
	for i := range batch {
		batch[i] = g.queue.Front().Value.(*look)
		g.pop(batch[i])
	}
	return batch
}

// answer reads the rows of a batch, each identity once.
func (g *gatherer) answer(batch []*look) {
	byID := make(map[digest][]*look, len(batch))
	ids := make([]digest, 0, len(batch))
	for _, l := range batch {
		if byID[l.id] == nil {
			ids = append(ids, l.id)
		}
		byID[l.id] = append(byID[l.id], l)
		l.err = semel.ErrNotFound
	}
	err := g.s.onRead(g.base, func(conn *pgconn.PgConn) error {
		return execute(g.base, conn, g.s.sql.getting(ids), func(row [][]byte) error {
			if looks := byID[digestOf(row[0])]; looks != nil {
				rec, err := decodeRecord(row[0], row[1], row[2], row[3])
				for _, l := range looks {
					l.rec, l.err = rec, err
				}
			}
			return nil
		})
	})
	for _, l := range batch {
		if err != nil {
			l.rec, l.err = semel.Record{}, fmt.Errorf("pgstore: get: %w", err)
		}
		close(l.done)
	}
}

// close refuses further Gets, gives up those that wait, and returns when those that
// were sent have ended.
func (g *gatherer) close() {
	g.mu.Lock()
	g.closed = true
	for g.queue.Len() > 0 {
		l := g.queue.Front().Value.(*look)
		g.pop(l)
		l.err = errClosed
		close(l.done)
	}
	g.mu.Unlock()
	g.active.Wait()
}
