package agents

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/thorough"
)

// TestPatience: a client that gives up after a minute on a tool that takes one and a half, as the
// SDK for JavaScript does by itself, and asks again, gets the answer of the one effect.
func TestPatience(t *testing.T) {
	thorough.Only(t, "stock clients of MCP that time out")
	t.Parallel()
	for how, version := range map[string]string{"modern": "2026-07-28", "legacy": "2025-11-25"} {
		for _, tool := range []string{"refund", "pay"} {
			t.Run(tool+", "+version, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, minutes(1.5), how == "modern")
				front := start(t, s.url+"/mcp")
				cmd := client{how: how, workers: 1, patience: minutes(1)}
				got := cmd.run(t, front.URL()+"/mcp", []told{{Tool: tool, Order: "o"}})
				if _, effects, _ := s.count(); effects != 1 || len(got) != 1 || got[0].Text != receipt("o", 1) || got[0].Tries < 2 {
					t.Errorf("%d effects: %+v", effects, got)
				}
			})
		}
	}
}

// TestHonestCalls: two equal calls that nothing tells from a repetition are two, one after the
// other and beside each other.
func TestHonestCalls(t *testing.T) {
	thorough.Only(t, "stock clients of MCP that mean it twice")
	t.Parallel()
	for how, version := range map[string]string{"modern": "2026-07-28", "legacy": "2025-11-25"} {
		for workers, name := range map[int]string{1: "one after the other", 2: "beside each other"} {
			t.Run(name+", "+version, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, 20*time.Millisecond, how == "modern")
				front := start(t, s.url+"/mcp")
				got := client{how: how, workers: workers, patience: time.Minute}.run(t, front.URL()+"/mcp", []told{{Tool: "pay", Order: "o"}, {Tool: "pay", Order: "o"}})
				var texts []string
				for _, g := range got {
					texts = append(texts, g.Text)
				}
				slices.Sort(texts)
				if _, effects, _ := s.count(); effects != 2 || strings.Join(texts, ", ") != receipt("o", 1)+", "+receipt("o", 2) {
					t.Errorf("%d effects: %+v", effects, got)
				}
			})
		}
	}
}

// run returns what the client was told of the calls.
func (c client) run(t *testing.T, url string, calls []told) (got []told) {
	var mu sync.Mutex
	c.each(t, url, calls, func(g told) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, g)
	})
	return got
}
