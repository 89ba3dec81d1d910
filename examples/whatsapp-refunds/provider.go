package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path"
	"sync"
	"time"
)

// payment is a payment by the payment service.
type payment struct {
	ID     string `json:"id"`
	Order  string `json:"order"`
	Amount string `json:"amount"`
}

// provider is the payment service. It pays once for each key, and keeps its own count.
type provider struct {
	work time.Duration // a request takes up to this long

	mu       sync.Mutex
	byKey    map[string]payment
	paid     map[string][]payment // by order
	requests int
	again    int // requests that it recognised by their key
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Amount string `json:"amount"`
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	key := r.Header.Get("Idempotency-Key")
	if err != nil || json.Unmarshal(body, &in) != nil || key == "" {
		http.Error(w, "an amount and a key, please", http.StatusBadRequest)
		return
	}
	if p.work > 0 {
		time.Sleep(rand.N(p.work)) // so that kills meet requests on their way
	}
	p.mu.Lock()
	p.requests++
	made, known := p.byKey[key]
	if known {
		p.again++
	} else {
		order := path.Base(r.URL.Path)
		made = payment{ID: fmt.Sprintf("re_%d", len(p.byKey)+1), Order: order, Amount: in.Amount}
		p.byKey[key] = made
		p.paid[order] = append(p.paid[order], made)
	}
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(made) // a client that is gone asks again
}
