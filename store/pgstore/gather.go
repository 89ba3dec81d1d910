package pgstore

import (
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
	queue   []*look
	running int
	closed  bool
	active  sync.WaitGroup
}

// look is one Get on its way.
type look struct {
	id    digest
	rec   semel.Record
	err   error
	done  chan struct{}
	taken bool
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
			return semel.Record{}, ctx.Err()
		case <-turn.C:
			if s.looks.late(l) {
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
	g.queue = append(g.queue, l)
	if g.running < lookers {
		g.running++
		g.active.Go(g.work)
	}
	return nil
}

// late reports whether a Get still waits for its turn.
func (g *gatherer) late(l *look) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !l.taken
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
	n := min(len(g.queue), maxLooks)
	if n == 0 {
		g.queue = nil
		g.running--
		return nil
	}
	batch := g.queue[:n:n]
	g.queue = g.queue[n:]
	for _, l := range batch {
		l.taken = true
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
	for _, l := range g.queue {
		l.taken, l.err = true, errClosed
		close(l.done)
	}
	g.queue = nil
	g.mu.Unlock()
	g.active.Wait()
}
