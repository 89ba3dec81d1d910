package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// order is what the tools of a shop take.
type order struct {
	ID string `json:"order_id"`
}

// shop is a stock server of the SDK for Go, which does what it is asked for each time, and counts.
// At /reconcile it says what it did for an order.
type shop struct {
	url  string
	work time.Duration // how long a call takes

	mu      sync.Mutex
	effects map[string]int // by order
	running map[string]int
}

func newShop(t testing.TB, work time.Duration, stateless bool) *shop {
	s := &shop{effects: map[string]int{}, running: map[string]int{}, work: work}
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	for _, name := range []string{"refund", "pay"} {
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: "does it, each time"}, func(ctx context.Context, _ *mcp.CallToolRequest, in order) (*mcp.CallToolResult, any, error) {
			s.begin(in.ID, 1)
			defer s.begin(in.ID, -1)
			select {
			case <-time.After(s.work):
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.effects[in.ID]++
			return s.said(in.ID), nil, nil
		})
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: stateless}))
	mux.HandleFunc("GET /reconcile", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		id := r.URL.Query().Get("order")
		if s.effects[id] == 0 {
			w.WriteHeader(map[bool]int{true: http.StatusConflict, false: http.StatusNoContent}[s.running[id] > 0])
			return
		}
		_ = json.NewEncoder(w).Encode(s.said(id)) // it is asked again
	})
	s.url = listen(t, mux)
	return s
}

// begin takes note that a call has begun, or ended.
func (s *shop) begin(id string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[id] += n
}

// said is the result of a call.
func (s *shop) said(id string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: receipt(id, s.effects[id])}}}
}

func receipt(id string, n int) string { return fmt.Sprintf("receipt %d of %s", n, id) }

// count is how many orders had an effect, how many effects there were, and which had more.
func (s *shop) count() (orders, effects int, twice []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.effects {
		effects += n
		if n > 1 {
			twice = append(twice, fmt.Sprintf("%s: %d", id, n))
		}
	}
	return len(s.effects), effects, twice
}
