// Package behind writes notes about calls in the background (write-behind): no delivery waits
// for it. It gathers notes in memory and writes them into cells after a pause, many at the same
// time, so that the store can batch them. It limits how many notes wait, and counts the ones
// that it drops.
package behind

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel/store"
)

// Pause is how long a [Queue] gathers notes before writing them. A killed process loses the
// notes of its last pause.
const Pause = 5 * time.Second

// writers is how many notes are written concurrently. It is half of a store's largest batch of
// concurrent writes, so that callers also find room in it.
const writers = 64

// stopTime bounds writing after Run's context has ended, if nobody calls Close.
const stopTime = 5 * time.Second

// Every calls write after each pause until ctx is done.
func Every(ctx context.Context, pause time.Duration, write func(context.Context)) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			write(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Turn lets only one writer write at a time. It has room for one.
type Turn chan struct{}

// Take waits for the turn, and reports false if ctx is done first.
func (t Turn) Take(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Done passes the turn to the next writer.
func (t Turn) Done() { <-t }

// Queue gathers a note for each key. Its methods may be called concurrently.
type Queue[K comparable, N any] struct {
	max   int
	write func(ctx context.Context, key K, note *N) error
	turn  Turn

	mu     sync.Mutex
	fresh  map[K]*sized[N]
	taken  map[K]*sized[N] // are written next
	order  []K             // of those
	size   int             // of all notes
	lost   uint64
	closed bool
}

type sized[N any] struct {
	note N
	size int
}

// New makes a queue that holds notes up to a total size. write writes one note. The queue calls
// it for many keys concurrently, and once for each note: if it fails, the note is lost, because
// the write may have arrived, and a second one would add the note twice.
func New[K comparable, N any](most int, write func(ctx context.Context, key K, note *N) error) *Queue[K, N] {
	return &Queue[K, N]{max: most, write: write, turn: make(Turn, 1), fresh: map[K]*sized[N]{}}
}

// Note changes the note of a key. change gets the free room, and returns how much the note has
// grown. Without room, notes about further keys are lost.
func (q *Queue[K, N]) Note(key K, change func(note *N, room int) (grown int)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.fresh[key]
	if s == nil {
		if q.size >= q.max || q.closed {
			q.lost++
			return
		}
		s = new(sized[N])
		q.fresh[key] = s
	}
	n := change(&s.note, q.max-q.size)
	s.size, q.size = s.size+n, q.size+n
}

// Look calls look with each waiting note about a key. While a note is being written, it may be
// neither here nor in its cell.
func (q *Queue[K, N]) Look(key K, look func(note *N)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, in := range []map[K]*sized[N]{q.taken, q.fresh} {
		if s := in[key]; s != nil {
			look(&s.note)
		}
	}
}

// Forget drops the notes about some keys.
func (q *Queue[K, N]) Forget(about func(K) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, in := range []map[K]*sized[N]{q.taken, q.fresh} {
		maps.DeleteFunc(in, func(key K, s *sized[N]) bool {
			if !about(key) {
				return false
			}
			q.size -= s.size
			return true
		})
	}
}

// State returns how many notes are waiting, and how many were lost.
func (q *Queue[K, N]) State() (waiting int, lost uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.fresh) + len(q.taken), q.lost
}

// Flush writes the waiting notes. Notes that it doesn't reach before ctx is done keep waiting.
func (q *Queue[K, N]) Flush(ctx context.Context) {
	if !q.turn.Take(ctx) {
		return
	}
	defer q.turn.Done()
	q.mu.Lock()
	if len(q.taken) == 0 {
		q.taken, q.fresh = q.fresh, map[K]*sized[N]{}
		q.order = slices.Collect(maps.Keys(q.taken))
	}
	n := min(len(q.order), writers)
	q.mu.Unlock()
	var work sync.WaitGroup
	for range n {
		work.Go(func() {
			for key, s := q.take(ctx); s != nil; key, s = q.take(ctx) {
				if err := q.write(ctx, key, &s.note); err != nil {
					q.lose(1)
				}
			}
		})
	}
	work.Wait()
}

// take removes a note before it is written, so that no reader counts it twice.
func (q *Queue[K, N]) take(ctx context.Context) (key K, s *sized[N]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for s == nil && len(q.order) > 0 && ctx.Err() == nil {
		last := len(q.order) - 1
		key, q.order = q.order[last], q.order[:last]
		s = q.taken[key] // nil if it was forgotten
		delete(q.taken, key)
	}
	if s != nil {
		q.size -= s.size
	}
	return key, s
}

func (q *Queue[K, N]) lose(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost += uint64(n)
}

// Run writes notes after each pause until ctx is done, and then the remaining ones, unless
// somebody calls Close first.
func (q *Queue[K, N]) Run(ctx context.Context) {
	Every(ctx, Pause, q.Flush)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	q.Close(ctx)
}

// Close writes the waiting notes until ctx is done, and returns how many it gives up. Later
// notes are lost.
func (q *Queue[K, N]) Close(ctx context.Context) (lost int) {
	for n, _ := q.State(); n > 0 && ctx.Err() == nil; n, _ = q.State() {
		q.Flush(ctx)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	lost = len(q.fresh) + len(q.taken)
	q.fresh, q.taken, q.order, q.size, q.closed = map[K]*sized[N]{}, nil, nil, 0, true
	q.lost += uint64(lost)
	return lost
}

// ErrNothing says that there is nothing to write.
var ErrNothing = errors.New("there is nothing to write")

// Beside updates a cell that belongs to a record: next gets the old value and returns the new
// one, and Beside sets its time, so that the cell lives no longer than the record. Without a
// record, or if next returns [ErrNothing], Beside writes nothing.
func Beside(ctx context.Context, st store.Store, id, cellID store.ID, next func(rec *store.Record, old store.CellValue) (store.CellValue, error)) error {
	rec, err := st.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	now, err := st.Now(ctx)
	if err != nil {
		return err
	}
	// A record with a running attempt lives at least for its window. The next duplicate writes
	// the cell again.
	life := rec.Policy.Stays()
	if rec.ExpiresAt != 0 {
		life = rec.ExpiresAt.Sub(now)
	}
	if cellID.Operation != store.CountsOperation { // it has payloads, which go when the record loses its own
		life -= rec.Policy.Stays() - rec.Policy.Window
	}
	if life <= 0 {
		return nil
	}
	cell := store.NewCell(st, cellID)
	err = cell.Change(ctx, func(old store.CellValue) (store.CellValue, error) {
		value, err := next(rec, old)
		value.KeepFor = life
		// A crash before this write loses the note; a crash after it loses nothing.
		return value, err
	})
	if errors.Is(err, ErrNothing) {
		return nil
	} else if err != nil {
		return err
	}
	// Whoever purges the record removes the cell afterwards, and may have done so before this
	// write. A crash here leaves the cell until it expires.
	if _, err = st.Get(ctx, id); errors.Is(err, store.ErrNotFound) {
		return cell.Remove(ctx)
	}
	return nil
}
