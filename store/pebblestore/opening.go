package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

// maxFailures is how often background work may fail before Open and Close give up on it.
const maxFailures = 3

func (s *Store) openPebble(o *Options, readOnly bool) (*pebble.DB, error) {
	po := o.pebble(&s.logger)
	po.Experimental.SpanPolicyFunc = kinds
	po.Lock, po.ReadOnly = s.lock, readOnly
	report := po.EventListener.BackgroundError
	po.EventListener.BackgroundError = func(err error) {
		report(err)
		select {
		case s.failures <- err:
		default: // enough are waiting
		}
	}
	return s.openOrGiveUp(o.ctx, func() (*pebble.DB, error) { return pebble.Open(s.dir, po) })
}

// flush writes the memory tables out. If that fails, all that they hold is in the log.
func (s *Store) flush() error {
	for len(s.failures) > 0 {
		<-s.failures
	}
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		select {
		case <-flushed:
			return nil
		case err := <-s.failures:
			if permanent(n, err) {
				s.logger.Error("the memory tables stay in the log when the store is closed", "error", err)
				return nil
			}
		}
	}
}

// permanent reports whether background work that has failed n times won't succeed.
func permanent(n int, err error) bool { return n == maxFailures || errors.Is(err, syscall.ENOSPC) }

// openOrGiveUp waits until a database is open, its background work has failed again and
// again, or ctx is done. Pebble writes what the log holds to tables, and if it can't, tries
// forever. It can't be stopped, so it keeps the directory until it succeeds or the process
// ends.
func (s *Store) openOrGiveUp(ctx context.Context, open func() (*pebble.DB, error)) (*pebble.DB, error) {
	type result struct {
		db  *pebble.DB
		err error
	}
	opened, gaveUp := make(chan result), make(chan struct{})
	go func() {
		db, err := open()
		select {
		case opened <- result{db, err}:
		case <-gaveUp:
			if err == nil {
				_ = db.Close()
			}
		}
	}()
	for n := 1; ; n++ {
		select {
		case r := <-opened:
			return r.db, r.err
		case <-ctx.Done():
			close(gaveUp)
			return nil, context.Cause(ctx)
		case failure := <-s.failures:
			if permanent(n, failure) {
				close(gaveUp)
				return nil, fmt.Errorf("what the log has can't be written to tables: %w", failure)
			}
		}
	}
}
