package stage

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Counts notes observations of many things: the effects of an order, say, or the answers to its
// callers. The zero value is empty.
type Counts struct {
	mu   sync.Mutex
	seen map[string][]string
}

// Add notes an observation of a thing.
func (c *Counts) Add(name, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string][]string{}
	}
	c.seen[name] = append(c.seen[name], what)
}

// Of returns all observations of a thing.
func (c *Counts) Of(name string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[name]
}

// Len is the number of things observed.
func (c *Counts) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

// Sum is the number of observations.
func (c *Counts) Sum() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range c.seen {
		n += len(all)
	}
	return n
}

// Repeated are the things with more than one observation.
func (c *Counts) Repeated() []string {
	return c.where(func(all []string) bool { return len(all) > 1 })
}

// Differing are the things with observations that differ.
func (c *Counts) Differing() []string {
	return c.where(func(all []string) bool {
		for _, what := range all {
			if what != all[0] {
				return true
			}
		}
		return false
	})
}

func (c *Counts) where(is func(all []string) bool) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, all := range c.seen {
		if is(all) {
			names = append(names, name)
		}
	}
	return names
}

// Upstream is a service without idempotency: it carries out every request, and counts. The body
// of a request is the name of its order, and each answer has a new receipt. At /reconcile it
// says what it has done for the order that the key names.
type Upstream struct {
	Counts               // the answers, by order
	Work   time.Duration // how long an order takes
	Asked  atomic.Int64  // how often somebody asked at /reconcile

	receipts atomic.Int64
}

// ServeHTTP carries out an order, or says how often it has.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/reconcile" {
		u.reconcile(w, r)
		return
	}
	order, err := io.ReadAll(r.Body)
	if err != nil {
		return // nothing was done
	}
	Pause(r.Context(), u.Work)
	answer := fmt.Sprintf(`{"order":%q,"receipt":%d}`, order, u.receipts.Add(1))
	u.Add(string(order), answer)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer)
}

// reconcile answers a proxy that never got the answer to an order, in the form of
// semelproxy.Finding. An order that never arrived won't: its sender is dead.
func (u *Upstream) reconcile(w http.ResponseWriter, r *http.Request) {
	u.Asked.Add(1)
	found := map[string]any{"outcome": "aborted"}
	if answers := u.Of(r.URL.Query().Get("key")); len(answers) > 0 {
		found = map[string]any{
			"outcome": "completed", "status": http.StatusCreated, "body": []byte(answers[0]),
			"headers": http.Header{"Content-Type": {"application/json"}},
		}
	}
	_ = json.NewEncoder(w).Encode(found) // it is asked again if the answer was lost
}
