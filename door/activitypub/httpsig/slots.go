package httpsig

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/semelhq/semel/internal/network"
)

// slots bound how many fetches run and wait: for one host so that nobody can direct this
// server's load at another, for one sender, for unknown hosts, and in total. A fetch beyond a
// bound is refused at once, so that it holds up nobody else.
type slots struct {
	mu    sync.Mutex
	n     map[string]int           // fetches that run or wait, by the bound that they count for
	hosts map[string]chan struct{} // semaphores; the last fetch of a host removes its own
	known *simplelru.LRU[string, struct{}]
}

func newSlots(hosts int) slots {
	return slots{n: map[string]int{}, hosts: map[string]chan struct{}{}, known: newLRU[struct{}](hosts)}
}

var errBusy = errors.New("too many keys are being fetched")

// delivered notes that somebody from the host has signed a delivery.
func (s *slots) delivered(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.Add(host, struct{}{})
}

// enter waits for a place at the host, unless too many are already waiting. The sender is empty
// if unknown.
func (s *slots) enter(ctx context.Context, host, sender string) (leave func(), err error) {
	s.mu.Lock()
	bounds := map[string]int{"all": maxFetches, "host " + host: maxQueued}
	if sender != "" {
		bounds["sender "+sender] = maxQueued
	}
	if !s.known.Contains(host) {
		bounds["strangers"] = maxStrangers
	}
	for what, most := range bounds {
		if s.n[what] >= most {
			s.mu.Unlock()
			return nil, errBusy
		}
	}
	for what := range bounds {
		s.n[what]++
	}
	free := s.hosts[host]
	if free == nil {
		free = make(chan struct{}, maxPerHost)
		s.hosts[host] = free
	}
	s.mu.Unlock()

	left := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for what := range bounds {
			if s.n[what]--; s.n[what] == 0 {
				delete(s.n, what)
			}
		}
		if s.n["host "+host] == 0 {
			delete(s.hosts, host)
		}
	}
	select {
	case free <- struct{}{}:
		return func() {
			<-free
			left()
		}, nil
	case <-ctx.Done():
		left()
		return nil, errBusy
	}
}

// senderKey is the context key for the address of a request's sender, during its fetches.
type senderKey struct{}

// withSender notes who sent a request, for the fetches that it causes.
func withSender(ctx context.Context, sender string) context.Context {
	return context.WithValue(ctx, senderKey{}, sender)
}

func senderOf(ctx context.Context) string {
	sender, _ := ctx.Value(senderKey{}).(string)
	return sender
}

// remoteAddress returns the address that a request came from, or for IPv6 its owner's network.
// It is empty for this machine's own addresses: behind such a proxy are all senders.
func remoteAddress(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || at.Addr().Unmap().IsLoopback() {
		return ""
	}
	return network.Of(at.Addr()).String()
}

// prompt is a transport that gives servers little time to begin an answer. A slow server would
// take a slot from others.
type prompt struct{ http.RoundTripper }

var errSlow = errors.New("the answer did not begin in time")

// RoundTrip asks once.
func (p prompt) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	late := time.AfterFunc(maxFirstByte, func() { cancel(errSlow) })
	defer late.Stop()
	return p.RoundTripper.RoundTrip(r.WithContext(ctx)) // reading the body needs ctx, which ends with r's
}
