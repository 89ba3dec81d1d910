package cli

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/stage"
)

const agentToken = "agent-7-has-a-token-of-forty-characters-"

// questioned is a service on a restored store, to which everything has happened that docs/questions.md asks
// about. problem is what a client got for a call that is held.
func questioned(t *testing.T, dir string) (admin string, problem struct{ Instance string }) {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "broken") {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/mcp" {
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"refunded"}]}}`)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"receipt":"r-1"}`)
	}))
	t.Cleanup(upstream.Close)
	file := filepath.Join(dir, "semel.yaml")
	config := fmt.Sprintf(`api: 'off'
store: {url: 'pebble:%[1]s/semel-data'}
evidence: {key_file: '%[1]s/evidence.key', every: 100ms, checkpoint_dir: '%[1]s/checkpoints'}
auth: {tokens: [{name: agent-7, token_file: '%[1]s/agent.token'}]}
operations: [{name: payments.charge, evidence: durable}, {name: receipts.mail, evidence: durable}, {name: tools, evidence: durable}]
mcp: [{path: /mcp, upstream: '%[2]s/mcp', operation: tools, tools: [{name: refund, key_fields: [/order_id]}], attributes: {order: json:/order_id}}]
routes:
  - {match: POST /payments, upstream: '%[2]s', operation: payments.charge, key: required, attributes: {order: json:/order_id}}
  - {match: POST /mails, upstream: '%[2]s', operation: receipts.mail, key: required, attributes: {customer: json:/customer}}
webhooks: [{path: /webhooks/shopify, source: shopify, secret_files: ['%[1]s/agent.token'], upstream: '%[2]s', mode: sync}]
`, dir, upstream.URL)
	write(t, file, config)
	write(t, filepath.Join(dir, "agent.token"), agentToken)
	run := func(args ...string) string {
		t.Helper()
		code, out, errs := semelWith(t, "", args...)
		if code != ExitOK {
			t.Fatal(errs)
		}
		return out
	}
	write(t, filepath.Join(dir, "evidence.pub"), run("evidence", "keygen", "--origin", "example.com/semel", "--out", filepath.Join(dir, "evidence.key")))
	data, _, stop := servingUntil(t, config)
	deliver := func(path, body string, headers ...string) []byte {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, data+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := stage.Direct.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	call := func(path, key, body string) []byte {
		return deliver(path, body, "Idempotency-Key", key, "Authorization", "Bearer "+agentToken)
	}
	call("/payments", "pay-9910", `{"order_id":"9910","amount":100}`)
	stop()
	run("store", "new-epoch", "--config", file, "--yes")
	data, admin, _ = servingUntil(t, config)
	var refused []byte
	for range 2 {
		call("/payments", "pay-9911", `{"order_id":"9911","amount":1200}`)
		call("/payments", "pay-9912", `{"order_id":"9912","card":"broken"}`)
		refused = call("/payments", "pay-9913", `{"order_id":"9913","card":"broken"}`)
	}
	if err := json.Unmarshal(refused, &problem); err != nil {
		t.Fatal(err)
	}
	for key, customer := range map[string]string{"mail-1": "c-7", "mail-2": "c-7", "mail-3": "c-8"} {
		call("/mails", key, `{"customer":"`+customer+`"}`)
	}
	for range 2 {
		deliver("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"refund","arguments":{"order_id":"9911"}}}`, "MCP-Protocol-Version", "2025-11-25", "Authorization", "Bearer "+agentToken)
	}
	event := `{"id":820982911946154508,"order_number":9911}`
	mac := hmac.New(sha256.New, []byte(agentToken))
	mac.Write([]byte(event))
	deliver("/webhooks/shopify", event, "X-Shopify-Hmac-Sha256", base64.StdEncoding.EncodeToString(mac.Sum(nil)),
		"X-Shopify-Topic", "orders/create", "X-Shopify-Shop-Domain", "lamps.myshopify.com", "X-Shopify-Event-Id", "98880550-7158-44d4-b7cd-2c97c8a091b5")
	untilCounted(t, admin, 12)
	run("records", "release", "pay-9912", "--url", admin, "--reason", "harmless, ticket 77", "--yes")
	for log := ""; !strings.Contains(log, "store.restored") || !strings.Contains(log, `"idempotency_key":"webhook:`) || !strings.Contains(log, "ticket 77"); { // signed behind
		log = run("evidence", "export", "--url", admin)
	}
	write(t, filepath.Join(dir, "proof.jsonl"), run("evidence", "prove", "3", "4", "--url", admin))
	return admin, problem
}

// TestPageOfQuestions runs every command of docs/questions.md: each question has one.
func TestPageOfQuestions(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	admin, problem := questioned(t, dir)
	// The minute and the day of the page may not be those of the test.
	p := newPage(t, "--node node-2 after:13:37 before:13:38", "--node "+host+" after:1h", "after:today", "after:1h", "urn:semel:call:REFERENCE", problem.Instance)
	p.dir = dir
	p.env = append(p.env, "XDG_CONFIG_HOME="+t.TempDir(), "SEMEL_URL="+admin, "SEMEL_TOKEN=")
	p.walks("docs/questions.md", "")
	for command, parts := range map[string][]string{
		"why":           {"tools, key ", "of agent-7", "executed once", "1 execute, 1 replay", "tool: refund"},
		"evidence show": {`"execution.executed"`, `"duplicate_replayed"`, `"principal": "agent-7"`, `"operation": "tools"`, `"fingerprint": "2:`, `"outcome_sha256": "`},
	} {
		args := append(strings.Fields(command), "tool=refund", "--url", admin)
		if command != "why" {
			args = append(args, "--json")
		}
		_, out, errs := semelWith(t, "", args...)
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("%s of a tool call has no %s:\n%s%s", command, part, out, errs)
			}
		}
	}
	text, err := os.ReadFile("../../../../docs/questions.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, question := range strings.Split(string(text), "\n## ")[1:] {
		title, _, _ := strings.Cut(question, "\n")
		n := 0
		for _, block := range walkBlock.FindAllStringSubmatch(question, -1) {
			n += strings.Count("\n"+block[1], "\n$ ")
		}
		if n != 1 {
			t.Errorf("%q takes %d commands", title, n)
		}
	}
}
