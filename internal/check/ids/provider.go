package ids

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
)

// provider is the outside system that commands have their effects on. It doesn't deduplicate:
// each request is an effect.
type provider struct {
	mu      sync.Mutex
	effects map[string]int // by target
	slow    map[string]gate
}

// gate holds the requests about a target until it is open, and says when the first has arrived.
type gate struct{ arrived, open chan struct{} }

// provide serves a provider until the context ends.
func provide(ctx context.Context, l net.Listener) *provider {
	p := &provider{effects: map[string]int{}, slow: map[string]gate{}}
	srv := &http.Server{Handler: p}
	go func() { _ = srv.Serve(l) }() // until it is closed
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	return p
}

// ServeHTTP counts a request as an effect.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ Intent struct{ Target string } }
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil || json.Unmarshal(body, &in) != nil || in.Intent.Target == "" {
		http.Error(w, "an envelope with a target, please", http.StatusBadRequest)
		return
	}
	target := in.Intent.Target
	p.mu.Lock()
	p.effects[target]++
	n, g := p.effects[target], p.slow[target]
	p.mu.Unlock()
	if g.open != nil {
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

// count is how many effects there were on a target.
func (p *provider) count(target string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.effects[target]
}

// hold makes requests about a target wait.
func (p *provider) hold(target string) gate {
	g := gate{make(chan struct{}), make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow[target] = g
	return g
}
