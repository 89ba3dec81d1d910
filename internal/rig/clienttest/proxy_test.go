package clienttest

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/peer"
)

// fault is how the way to the service fails for requests whose path has an end.
type fault struct {
	Path string `json:"path"`
	What string `json:"what"`  // lost_request, lost_answer, empty, silent, bad_gateway or stranger
	Left int    `json:"times"` // absent: until it is healed
}

// proxy is the way to the service, which fails on demand.
type proxy struct {
	target func() string

	mu     sync.Mutex
	faults []*fault
	fired  int
	tokens int // that a stranger got
}

// serve starts the proxy, and returns its address.
func (p *proxy) serve(t *testing.T) string {
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	return srv.URL
}

// fails takes the fault that meets a request.
func (p *proxy) fails(r *http.Request) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if f.Left == 0 || !strings.HasSuffix(r.URL.Path, f.Path) {
			continue
		}
		f.Left--
		p.fired++
		if f.What == "stranger" && r.Header.Get("Authorization") != "" {
			p.tokens++
		}
		return f.What
	}
	return ""
}

func (p *proxy) set(f *fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f == nil {
		p.faults = nil
		return
	}
	own := *f
	own.Left = cmp.Or(own.Left, math.MaxInt)
	p.faults = append(p.faults, &own)
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	what := p.fails(r)
	switch {
	case err != nil || what == "lost_request":
		panic(http.ErrAbortHandler)
	case what == "silent":
		<-r.Context().Done()
		return
	case what == "empty": // of the service, and useless
		peer.Mark(w.Header(), peer.Data)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
		return
	case what == "bad_gateway" || what == "stranger":
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(map[string]int{"bad_gateway": http.StatusBadGateway, "stranger": http.StatusOK}[what])
		return
	}
	// What the service got, it does: a client that has gone doesn't stop it.
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, p.target()+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	out.Header = r.Header
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || what == "lost_answer" {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(answer)
}
