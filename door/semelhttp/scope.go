package semelhttp

import (
	"context"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
)

// Attempt returns the attempt that a guarded handler runs under, which [semel.Effect] needs. It
// reports false if there is none: outside a guard, for a method that isn't guarded, without a
// key if that is optional, and on a route with Tx.
func Attempt(ctx context.Context) (*semel.Attempt, bool) {
	a, ok := ctx.Value(attemptKey{}).(*semel.Attempt)
	return a, ok
}

type attemptKey struct{}

// scope is a handler's context: its attempt's, with the route's deadline. It makes the context
// on first use, because many handlers end without using it.
type scope struct {
	door.Run

	capture *capture // its answer

	mu      sync.Mutex
	ctx     context.Context
	cancel  context.CancelFunc
	verdict *verdict // nil: the status decides
	gone    bool     // the handler panicked, and somebody inside the guard recovered
}

// Deadline returns the route's deadline.
func (s *scope) Deadline() (time.Time, bool) {
	return s.Run.Deadline, !s.Run.Deadline.IsZero()
}

// Done is closed when the lease is lost, the deadline has passed, or the handler has returned.
func (s *scope) Done() <-chan struct{} { return s.get().Done() }

// Err says which of these happened.
func (s *scope) Err() error { return s.get().Err() }

// Value returns the attempt, and everything that the request's context has. That needs no
// context of the scope's own, unless there is one already; then package context looks for it.
func (s *scope) Value(key any) any {
	switch key {
	case attemptKey{}:
		if s.Attempt == nil {
			return nil
		}
		return s.Attempt
	case scopeKey{}:
		return s
	}
	s.mu.Lock()
	ctx := s.ctx
	s.mu.Unlock()
	switch {
	case ctx != nil:
	case s.Attempt != nil:
		ctx = s.Attempt.Context()
	default:
		ctx = s.Tx
	}
	return ctx.Value(key)
}

func (s *scope) get() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		s.ctx, s.cancel = s.Run.Context()
	}
	return s.ctx
}

// stopped reports whether the context of the handler has ended. A handler that never looked
// at it can't have noticed.
func (s *scope) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ctx != nil && s.ctx.Err() != nil
}

// panic notes that a recoverer inside the guard answers for the handler.
func (s *scope) panic() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
}

// word returns what the handler has said about its effects, nil if nothing, and whether the
// guard or [Panicked] noted a panic.
func (s *scope) word() (v *verdict, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verdict, s.gone
}

// close frees what the context holds, once the handler has returned.
func (s *scope) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
}
