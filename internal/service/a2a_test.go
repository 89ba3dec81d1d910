package service_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
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

// TestAgentForCallersOnly: whatever a request to an agent does, its caller is known, but for
// what everybody may read; and nobody makes the agent see another method or a hidden message.
func TestAgentForCallersOnly(t *testing.T) {
	var mu sync.Mutex
	var got []string
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, strings.Join([]string{r.Method, r.URL.Path, r.Header.Get("X-Principal"), r.Header.Get("X-Http-Method-Override"), string(body)}, " "))
		_, _ = io.WriteString(w, "{}")
	}))
	defer agent.Close()
	s := start(t, write(t, strings.ReplaceAll(`
store: {url: 'memory:'}
auth: {default_tenant: acme, tokens: [{name: alice, sha256: 0c848abb03307b06cf70cd4e29c157dc81af5e94ab3eb1d0c59a120269572376}]}
operations: [{name: messages}]
a2a: [{path: /agent, upstream: AGENT/, operation: messages, principal_header: X-Principal}]
`, "AGENT", agent.URL)))
	alice := []string{"Authorization", "Bearer alice-secret"}
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
		sent               string
	}{
		{"DELETE", "/agent/v1/tasks/t-1/pushNotificationConfigs/1", "", nil, 401, ""},
		{"GET", "/agent/v1/tasks/t-1", "", nil, 401, ""},
		{"HEAD", "/agent/v1/card", "", nil, 401, ""},
		{"GET", "/agent/x/.well-known/agent-card.json", "", nil, 401, ""},
		{"GET", "/agent/.well-known/../v1/tasks", "", nil, 404, ""},
		{"GET", "/agent/.well-known/%2e%2e/v1/tasks", "", nil, 404, ""},
		{"DELETE", "/agent/.well-known/agent-card.json", "", nil, 401, ""},
		{"GET", "/agent/.well-known/agent-card.json", "", nil, 200, "GET /.well-known/agent-card.json   "},
		{"DELETE", "/agent/v1/tasks/t-1/pushNotificationConfigs/1", "", alice, 200, "DELETE /v1/tasks/t-1/pushNotificationConfigs/1 alice  "},
		{"GET", "/agent/v1/tasks/t-1", "", append(alice, "X-Http-Method-Override", "POST"), 200, "GET /v1/tasks/t-1 alice  "},
		{"GET", "/agent/", `{"jsonrpc":"2.0","id":1,"method":"SendMessage"}`, alice, 413, ""},
	} {
		status, _, text := do(t, c.method, s.data(c.path), c.body, c.header...)
		mu.Lock()
		if status != c.status || strings.Join(got, ",") != c.sent {
			t.Errorf("%s %s %v: %d %s; the agent got %q", c.method, c.path, c.header, status, text, got)
		}
		got = nil
		mu.Unlock()
	}
}

// TestAgentAtTheRoot: an agent at the root has its card where A2A looks for it, and gets what
// nothing else on the listener gets.
func TestAgentAtTheRoot(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"`+r.Method+" "+r.URL.Path+`","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}}`)
	}))
	defer up.Close()
	s := start(t, write(t, strings.ReplaceAll(`
store: {url: 'memory:'}
operations: [{name: messages, on_failure: replay}]
a2a: [{path: /, upstream: AGENT/rpc, operation: messages}, {path: /other, upstream: AGENT/two, operation: messages}]
routes: [{match: /shop/, upstream: AGENT, mode: "off", operation: messages}]
`, "AGENT", up.URL)))
	send := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m-ID","role":"ROLE_USER","parts":[{"text":"pay"}]}}}`
	for i, c := range []struct{ method, path, what string }{
		{"GET", "/.well-known/agent-card.json", `"GET /rpc/.well-known/agent-card.json"`},
		{"GET", "/tasks/1", `"GET /rpc/tasks/1"`},
		{"POST", "/", `"POST /rpc"`},
		{"POST", "/v1/operations/messages/executions", `"POST /rpc/v1/operations/messages/executions"`},
		{"POST", "/other", `"POST /two"`},
		{"POST", "/shop/cart", `"POST /shop/cart"`},
		{"GET", "/semel/problems/in_flight", "in_flight"},
	} {
		body := ""
		if c.method == "POST" {
			body = strings.Replace(send, "ID", fmt.Sprint(i), 1)
		}
		if status, _, text := do(t, c.method, s.data(c.path), body); status != 200 || !strings.Contains(text, c.what) {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, text)
		}
	}
	for path, rule := range map[string]string{"/": "door a2a", "/shop/cart": "routes[0]", "/other/tasks/1": "door a2a"} {
		var x explained
		if status, _, text := do(t, "POST", s.admin("/v1/explain"), `{"request": "GET `+path+`"}`); status != 200 || json.Unmarshal([]byte(text), &x) != nil || x.Rule != rule {
			t.Errorf("explain %s: %d %s", path, status, text)
		}
	}
}
