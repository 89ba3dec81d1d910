package httpsig

import (
	"context"
	"errors"
	"sync"
)

// slots bound how many fetches run at once: of one host so that nobody can direct this
// server's load at another, and in all.
type slots struct {
	mu    sync.Mutex
	hosts map[string]*slot
	n     int // fetches that run or wait
}

type slot struct {
	free chan struct{} // a semaphore
	n    int           // fetches that run or wait; the last one removes the slot
}

var errBusy = errors.New("too many keys are being fetched")

// enter waits for a place at the host, unless too many wait already.
func (s *slots) enter(ctx context.Context, host string) (leave func(), err error) {
	s.mu.Lock()
	if s.n == maxFetches {
		s.mu.Unlock()
		return nil, errBusy
	}
	at := s.hosts[host]
	if at == nil {
		at = &slot{free: make(chan struct{}, maxPerHost)}
		s.hosts[host] = at
	}
	s.n++
	at.n++
	s.mu.Unlock()

	select {
	case at.free <- struct{}{}:
		return func() {
			<-at.free
			s.left(host, at)
		}, nil
	case <-ctx.Done():
		s.left(host, at)
		return nil, errBusy
	}
}

func (s *slots) left(host string, at *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n--
	if at.n--; at.n == 0 {
		delete(s.hosts, host)
	}
}
