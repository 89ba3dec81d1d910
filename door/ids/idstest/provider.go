package idstest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Provider is the outside system that commands have their effects on. It doesn't deduplicate:
// each request is an effect.
type Provider struct {
	// URL is the address to POST commands to. The request is an envelope; the provider looks
	// only at its intent.
	URL string

	mu      sync.Mutex
	effects map[string]int // by target
	slow    map[string]*gate
}

// gate holds slow requests about a target.
type gate struct {
	arrived chan struct{} // closed when the first request has arrived
	open    chan struct{} // closed by release
	release func()
}

// NewProvider starts a provider on a free loopback port. It ends with the test.
func NewProvider(t testing.TB) *Provider {
	p := &Provider{effects: map[string]int{}, slow: map[string]*gate{}}
	srv := httptest.NewServer(p)
	p.URL = srv.URL
	t.Cleanup(func() {
		p.mu.Lock()
		for _, g := range p.slow {
			g.release()
		}
		p.mu.Unlock()
		srv.Close()
	})
	return p
}

// ServeHTTP counts a request as an effect.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ Intent struct{ Target string } }
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &in) != nil || in.Intent.Target == "" {
		http.Error(w, "an envelope with a target, please", http.StatusBadRequest)
		return
	}
	target := in.Intent.Target
	p.mu.Lock()
	p.effects[target]++
	n, g := p.effects[target], p.slow[target]
	p.mu.Unlock()
	if g != nil {
		if n == 1 {
			close(g.arrived)
		}
		select {
		case <-g.open:
		case <-r.Context().Done():
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"summary": "done: " + target, "outcome": map[string]any{"target": target, "effect": n},
	})
}

// Effects returns how many effects there were on a target.
func (p *Provider) Effects(target string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.effects[target]
}

// hold makes requests about a target wait until they are released.
func (p *Provider) hold(target string) *gate {
	open := make(chan struct{})
	g := &gate{make(chan struct{}), open, sync.OnceFunc(func() { close(open) })}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow[target] = g
	return g
}
