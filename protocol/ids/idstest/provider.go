package idstest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Provider is the system outside that commands have their effects on. It knows
// nothing of idempotency: each request is an effect.
type Provider struct {
	// URL is where commands are sent to by POST. The request is an envelope, of
	// which intent is looked at.
	URL string

	mu      sync.Mutex
	effects map[string]int           // by target
	arrived map[string]chan struct{} // closed when the first slow request is there
	gates   map[string]chan struct{} // closed when slow requests may be answered
}

// NewProvider starts a provider on a free port of loopback, which ends with the test.
func NewProvider(t testing.TB) *Provider {
	p := &Provider{effects: map[string]int{}, arrived: map[string]chan struct{}{}, gates: map[string]chan struct{}{}}
	srv := httptest.NewServer(p)
	p.URL = srv.URL
	t.Cleanup(func() {
		p.mu.Lock()
		for _, gate := range p.gates {
			select {
			case <-gate:
			default:
				close(gate)
			}
		}
		p.mu.Unlock()
		srv.Close()
	})
	return p
}

// ServeHTTP has an effect.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Intent struct {
			Target string `json:"target"`
		} `json:"intent"`
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &in) != nil || in.Intent.Target == "" {
		http.Error(w, "an envelope with a target, please", http.StatusBadRequest)
		return
	}
	target := in.Intent.Target
	p.mu.Lock()
	p.effects[target]++
	n, gate := p.effects[target], p.gates[target]
	if arrived := p.arrived[target]; arrived != nil && n == 1 {
		close(arrived)
	}
	p.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-r.Context().Done():
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"summary": "done: " + target, "outcome": map[string]any{"target": target, "effect": n},
	})
}

// Effects is how many effects there were on a target.
func (p *Provider) Effects(target string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.effects[target]
}

// hold lets requests about a target wait. arrived is closed when the first is there;
// release lets all go on.
func (p *Provider) hold(target string) (arrived <-chan struct{}, release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrived[target], p.gates[target] = make(chan struct{}), make(chan struct{})
	gate := p.gates[target]
	return p.arrived[target], sync.OnceFunc(func() { close(gate) })
}
