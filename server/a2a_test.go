package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/clause"
)

// TestA2A: an agent in the configuration gets each message once, for callers that auth
// knows, over both bindings.
func TestA2A(t *testing.T) {
	clause.Proves(t, "MAP-A2A.1")
	id := regexp.MustCompile(`"id":\d+`)
	var mu sync.Mutex
	var paths []string
	var headers []http.Header
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		paths, headers = append(paths, r.Method+" "+r.URL.Path), append(headers, r.Header)
		task := fmt.Sprintf(`{"task":{"id":"T%d","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}`, len(paths))
		if rpc := id.FindString(string(body)); rpc != "" {
			task = `{"jsonrpc":"2.0",` + rpc + `,"result":` + task + `}`
		}
		_, _ = io.WriteString(w, task)
	}))
	defer agent.Close()
	// The tokens are alice-secret and bob-secret.
	s := start(t, write(t, strings.ReplaceAll(`
store: {url: 'memory:'}
auth: {default_tenant: acme, tokens: [{name: alice, sha256: 0c848abb03307b06cf70cd4e29c157dc81af5e94ab3eb1d0c59a120269572376}, {name: bob, sha256: 9f03ef1533a68d2f506f81ef463c1183a82a6bd40e45613f36e6fe1889cf1b99}]}
operations: [{name: messages}]
a2a: [{path: /agent, upstream: AGENT/rpc, operation: messages, principal_header: X-Principal, effect_header: X-Effect}]
routes: [{match: /, upstream: "http://127.0.0.1:1", mode: "off", operation: messages}]
`, "AGENT", agent.URL)))
	params := func(text string) string {
		return `{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"` + text + `"}]}}`
	}
	rpc := func(id int, text string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"SendMessage","params":%s}`, id, params(text))
	}
	for i, c := range []struct {
		who, path, body string
		status          int
		text            string
		sent            int
	}{
		{"", "/agent", rpc(1, "pay"), 401, `"reason":"UNIDENTIFIED"`, 0},
		{"mallory", "/agent", rpc(1, "pay"), 401, `"error"`, 0},
		{"alice-secret", "/agent", rpc(1, "pay"), 200, `"id":1,"result":{"task":{"id":"T1"`, 1},
		{"alice-secret", "/agent", rpc(2, "pay"), 200, `"id":2,"result":{"task":{"id":"T1"`, 1},
		{"alice-secret", "/agent", rpc(3, "pay twice"), 200, `"id":3,"error":{"code":-32602`, 1},
		{"alice-secret", "/agent", `[` + rpc(3, "pay") + `]`, 200, `"code":-32600`, 1},
		{"bob-secret", "/agent", rpc(1, "pay"), 200, `{"task":{"id":"T2"`, 2},
		{"alice-secret", "/agent/message:send", strings.Replace(params("pay"), "m-1", "m-2", 1), 200, `{"task":{"id":"T3"`, 3},
		{"alice-secret", "/agent/message:send", strings.Replace(params("pay"), "m-1", "m-2", 1), 200, `{"task":{"id":"T3"`, 3},
		{"alice-secret", "/agent/x/../message:send", params("pay"), 404, `NOT_FOUND`, 3},
	} {
		var header []string
		if c.who != "" {
			header = []string{"Authorization", "Bearer " + c.who}
		}
		status, _, text := do(t, "POST", s.data(c.path), c.body, header...)
		mu.Lock()
		if status != c.status || !strings.Contains(text, c.text) || len(paths) != c.sent {
			t.Errorf("%d: %d %s; %d were sent on", i, status, text, len(paths))
		}
		mu.Unlock()
	}
	if h := headers[0]; h.Get("X-Principal") != "alice" || h.Get("Authorization") != "" || h.Get("X-Effect") == "" {
		t.Errorf("the agent got %v", h)
	}
	if status, _, text := do(t, "GET", s.data("/agent/.well-known/agent-card.json"), "", "Authorization", "Bearer alice-secret"); status != 200 || paths[3] != "GET /rpc/.well-known/agent-card.json" {
		t.Errorf("the card: %d %s, %v", status, text, paths)
	}
	if got := strings.Join(paths[:3], ", "); got != "POST /rpc, POST /rpc, POST /rpc/message:send" {
		t.Errorf("the agent was asked at %s", got)
	}
	// Calls of the operation begin at the agent only.
	if status, _, text := do(t, "POST", s.data("/v1/operations/messages/executions"), `{"key":"k"}`, "Authorization", "Bearer alice-secret"); status < 400 {
		t.Errorf("the execution API: %d %s", status, text)
	}
}
