package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/redistest"
)

// held is a batcher whose batches are answered when gate says so.
type held struct {
	batcher
	gate  chan struct{}
	work  sync.WaitGroup
	mu    sync.Mutex
	sizes []int
}

func newHeld() *held {
	h := &held{gate: make(chan struct{})}
	h.batcher.work = &h.work
	h.room = new(room)
	h.run = func(batch []*write) {
		h.mu.Lock()
		h.sizes = append(h.sizes, len(batch))
		h.mu.Unlock()
		<-h.gate
	}
	return h
}

func TestWritesOfConcurrentCallersShareARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		var callers sync.WaitGroup
		const writes = flights + 10 + 3*maxBatch
		for range writes {
			callers.Go(func() {
				if err := h.do(t.Context(), newWrite()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if len(h.sizes) != flights || slices.Max(h.sizes) != 1 {
			t.Errorf("on their way are batches of %v", h.sizes)
		}
		close(h.gate)
		callers.Wait()
		h.work.Wait()
		sum := 0
		for _, n := range h.sizes {
			sum += n
			if n > maxBatch {
				t.Errorf("a batch of %d", n)
			}
		}
		if sum != writes || len(h.sizes) > flights+5 {
			t.Errorf("%d writes in batches of %v", sum, h.sizes)
		}
		if h.running != 0 || h.out != 0 || h.queue != nil {
			t.Errorf("afterwards %d run, with %d writes, and %d wait", h.running, h.out, len(h.queue))
		}
	})
}

func TestTheBatchesOfManyAreAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		var callers sync.WaitGroup
		const many, turns = 64, 50
		for range many {
			callers.Go(func() {
				for range turns {
					if err := h.do(t.Context(), newWrite()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		synctest.Wait()
		go func() {
			for range many * turns { // more than there are batches
				synctest.Wait()
				select {
				case h.gate <- struct{}{}:
				case <-t.Context().Done():
					return
				}
			}
		}()
		callers.Wait()
		h.work.Wait()
		settled := h.sizes[len(h.sizes)/4 : len(h.sizes)*3/4]
		if share := many / flights; slices.Min(settled) < share/2 || slices.Max(settled) > share+flights {
			t.Errorf("of %d callers, %d batches at a time: batches of %v", many, flights, settled)
		}
	})
}

func TestAPeakIsOfLate(t *testing.T) {
	var p peak
	for _, c := range []struct{ batches, of, want int }{{1, 64, 64}, {window, 8, 64}, {window, 8, 8}, {1, 30, 30}} {
		for range c.batches {
			p.note(c.of)
		}
		if p.of() != c.want {
			t.Errorf("after %d batches of %d: %d, want %d", c.batches, c.of, p.of(), c.want)
		}
	}
}

func TestAWriteThatWasNotSentIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		var callers sync.WaitGroup
		for range flights {
			callers.Go(func() { _ = h.do(t.Context(), newWrite()) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.do(ctx, newWrite()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ends with %v", err)
		}
		close(h.gate)
		callers.Wait()
		h.work.Wait()
		if len(h.sizes) != flights || len(h.queue) > 0 {
			t.Errorf("batches of %v, %d in the queue", h.sizes, len(h.queue))
		}
	})
}

// A write that can't be made, because something else has its key, keeps none of those
// that share its run from being made.
func TestOneThatCannotBeMade(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
	recs := manyClaims()
	d := recs[2].ID.Digest()
	_, foreign := s.keys.find(&d)
	srv.Do("LPUSH", foreign, "not a record")
	applied, errs := applyAll(t, s, recs)
	for i, err := range errs {
		if bad := i == 2; (err != nil) != bad || applied[i] == bad {
			t.Errorf("write %d: applied %v, %v", i, applied[i], err)
		}
		if rec, err := s.Get(t.Context(), recs[i].ID); i != 2 && (err != nil || rec.Revision != recs[i].Revision) {
			t.Errorf("record %d: %v, %v", i, rec.Revision, err)
		}
	}
}

// Without an entry nobody would find a record that its holder has left.
func TestNoRecordIsStoredWithoutItsEntry(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
	for _, size := range []int{0, stageFrom} {
		there := manyClaims()[0]
		there.ID.Key = fmt.Sprint("there", size)
		mustApply(t, s, there, semel.Revision{})
		stream := s.keys.shards[0].new
		srv.Do("RENAME", stream, stream+"kept")
		srv.Do("SET", stream, "not a stream")
		recs := append(manyClaims(), there)
		for i := range recs {
			recs[i].Result.Data = make([]byte, size)
		}
		applied, errs := applyAll(t, s, recs)
		for i, err := range errs {
			if applied[i] || (err == nil) != (i == len(recs)-1) {
				t.Errorf("write %d: applied %v, %v", i, applied[i], err)
			}
			if rec, err := s.Get(t.Context(), recs[i].ID); i < len(recs)-1 && !errors.Is(err, semel.ErrNotFound) {
				t.Errorf("record %d: %v, %v", i, rec.Revision, err)
			}
		}
		done := there
		done.Revision, done.State = newRevision(), semel.Completed
		mustApply(t, s, done, there.Revision)
		wantNothingStaged(t, srv, s)
		srv.Do("RENAME", stream+"kept", stream)
	}
}

func manyClaims() []semel.Record {
	recs := make([]semel.Record, flights+12)
	for i := range recs {
		recs[i] = semel.Record{ID: semel.ID{Operation: "op", Key: fmt.Sprint(i)}, Revision: newRevision(), State: semel.Processing, CreatedAt: 1e18, NextAt: 2e18, Fence: 1}
	}
	return recs
}

// applyAll claims all at once.
func applyAll(t *testing.T, s *Store, recs []semel.Record) (applied []bool, errs []error) {
	var callers sync.WaitGroup
	errs, applied = make([]error, len(recs)), make([]bool, len(recs))
	for i := range recs {
		callers.Go(func() { _, applied[i], errs[i] = s.Apply(t.Context(), semel.Write{Record: recs[i]}) })
	}
	callers.Wait()
	return applied, errs
}
