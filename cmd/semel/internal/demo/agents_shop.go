package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/rig/stage"
)

// The tools of the server that agents call.
const (
	refundTool  = "refund"  // tells one call from another by the order
	voucherTool = "voucher" // has nothing that does
	refundsTool = "refunds" // only reads
)

// slowOrder is the order at which the first answer takes crashDelay, long enough to kill the gateway
// that waits for it.
const slowOrder = "slow-1"

// shop is a plain server of tools over MCP. It knows nothing of keys: each call pays.
type shop struct {
	mu     sync.Mutex
	ledger map[string]int // payments by tool and order
	next   func()         // called at the next payment; nil: nothing
}

// onPayment has f called at the next payment, before it is answered.
func (s *shop) onPayment(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = f
}

func (s *shop) paid(tool, order string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger[tool+" "+order]
}

// pay writes a payment into the ledger.
func (s *shop) pay(tool, order string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger[tool+" "+order]++
	if s.next != nil {
		s.next()
		s.next = nil
	}
	return s.ledger[tool+" "+order]
}

// ServeHTTP answers requests in any version of the protocol, as far as agents here need it.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	m, bad := jsonrpc.ReadMessage(text)
	if err != nil || bad != nil {
		http.Error(w, "a request of JSON-RPC, please", http.StatusBadRequest)
		return
	}
	var call toolCall
	_ = json.Unmarshal(m.Params, &call) // what lacks something is about no order
	said := ""
	switch order := call.Arguments["order_id"]; call.Name {
	case refundTool, voucherTool:
		n := s.pay(call.Name, order)
		delay := minDelay
		if order == slowOrder && n == 1 {
			delay = crashDelay
		}
		stage.Pause(r.Context(), delay)
		said = fmt.Sprintf("%s number %d for order %s", call.Name, n, order)
	case refundsTool:
		said = fmt.Sprintf("order %s: %s", order, plural(s.paid(refundTool, order), "refund"))
	}
	result, _ := json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": said}}}) // strings
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(jsonrpc.Answer(m.ID, result, nil)) // an agent that is gone asks again
}

// toolCall is the parameters of a call.
type toolCall struct {
	Name      string            `json:"name"`
	Arguments map[string]string `json:"arguments"`
}

// told is the answer to a call.
type told struct {
	text     string
	replayed bool
	outcome  string // of a refusal
	action   string // that it asks for
	id       string // under which it came
}

// ask calls a tool once, as a stock client does: under an id of its own, and without a key. A
// connection that breaks gives an error.
func (a *agents) ask(ctx context.Context, base, tool, order string) (t told, err error) {
	a.ids++
	id := fmt.Sprint(a.ids)
	call := toolCall{tool, map[string]string{"order_id": order}}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":%s}`, id, document(call))
	header := http.Header{"Accept": {jsonType, "text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"}}
	req, err := newPost(ctx, base, header, []byte(body))
	if err != nil {
		return t, err
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return t, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return t, err
	}
	result := jsonscan.Member(text, "result")
	meta := jsonscan.Member(result, "_meta")
	for part := range jsonscan.Items(jsonscan.Member(result, "content")) {
		t.text, _ = jsonscan.Text(jsonscan.Member(part, "text"))
	}
	refusal := jsonscan.Member(meta, "io.github.semelhq/refusal")
	t.outcome, _ = jsonscan.Text(jsonscan.Member(refusal, "outcome"))
	t.action, _ = jsonscan.Text(jsonscan.Member(refusal, "action"))
	t.replayed = string(jsonscan.Member(meta, "io.github.semelhq/replayed")) == "true"
	t.id = string(jsonscan.Member(text, "id"))
	if result == nil || t.id != id {
		return t, fmt.Errorf("asked under %s: %d %s", id, resp.StatusCode, text)
	}
	return t, nil
}
