package sse

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// Place is how far a stream was read that its server ended early: a client reads on after the newest
// id, and after a pause that the server asks for.
type Place struct {
	last  string
	pause time.Duration
}

// NewPlace is the beginning of a stream. Where the server doesn't ask for a pause, it is a second.
func NewPlace() *Place { return &Place{pause: time.Second} }

// Note takes note of what an event says about the place.
func (p *Place) Note(event []byte) {
	if id, ok := ID(event); ok {
		p.last = id
	}
	for value := range fields(event, "retry") {
		if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
			p.pause = time.Duration(ms) * time.Millisecond
		}
	}
}

// Wait waits for the pause. It reports false if nobody can read on.
func (p *Place) Wait(ctx context.Context) bool {
	if p.last == "" {
		return false
	}
	select {
	case <-time.After(p.pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// Rest asks for the rest, as the sender of the request that began the stream.
func (p *Place) Rest(ctx context.Context, first *http.Request) *http.Request {
	r := first.Clone(ctx)
	r.Method, r.Body, r.GetBody, r.ContentLength = http.MethodGet, http.NoBody, nil, 0
	r.Header.Del("Content-Type")
	r.Header["Accept"], r.Header["Last-Event-Id"] = []string{MediaType}, []string{p.last}
	return r
}
