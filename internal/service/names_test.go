package service_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/service/auth"
)

// TestAnOrderIsFoundAtEveryDoor: whichever door a call comes through, people find it by the
// number of the order that the configuration says where to find.
func TestAnOrderIsFoundAtEveryDoor(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, map[string]string{
			"/agent":  `{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"T1","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}}`,
			"/forrst": `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_1","result":{"n":1}}`,
			"/ids":    `{"summary":"Cancelled"}`,
		}[r.URL.Path])
	}))
	defer upstream.Close()
	dir := t.TempDir()
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"secret": "a webhook's secret", "evidence.key": string(keys.Text()),
		"commands.yaml": "version: 1\ncommands: [{entity: order, action: cancel, handler: {url: '" + upstream.URL + "/ids'}}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	token, sum := auth.NewToken()
	s := start(t, write(t, fmt.Sprintf(`
store: {url: "memory:"}
auth: {default_tenant: acme, tokens: [{name: alice, tenant: acme, sha256: %[1]q}]}
evidence: {key_file: "%[2]s/evidence.key"}
operations: [{name: default}, {name: tools}]
commands: {registry: "%[2]s/commands.yaml", attributes: {order: json:/order_id}}
webhooks:
  - {path: /hooks/shopify, source: shopify, secret_files: ["%[2]s/secret"], upstream: "%[3]s/hook"}
  - {path: /hooks/github, source: github, secret_files: ["%[2]s/secret"], upstream: "%[3]s/hook", attributes: {order: json:/client_payload/order}}
activitypub:
  - {actors_url: "https://here.example/actors/{actor}", actors: [alice], upstream: "%[3]s/inbox", instances: [{host: "*", unsigned: allow}], attributes: {order: json:/order}}
a2a: [{path: /agent, upstream: "%[3]s/agent", attributes: {order: json:/metadata/order}}]
mcp: [{path: /mcp, upstream: "%[3]s/mcp", operation: tools, attributes: {order: json:/order_id}}]
forrst: [{path: /forrst, upstream: "%[3]s/forrst", functions: [{name: pay, versions: [1.0.0]}], attributes: {order: json:/order_id}}]
`, sum, dir, upstream.URL)))
	known := []string{"Authorization", "Bearer " + token, "Content-Type", "application/json"}
	github, shopify := `{"client_payload":{"order":"9911"}}`, `{"id":9911}`
	for door, c := range map[string]struct {
		path, body string
		header     []string
	}{
		"webhook.github":    {"/hooks/github", github, signedAs(t, "github", "a webhook's secret", github, "Content-Type", "application/json", "X-GitHub-Delivery", "d1", "X-GitHub-Event", "repository_dispatch")},
		"webhook.shopify":   {"/hooks/shopify", shopify, signedAs(t, "shopify", "a webhook's secret", shopify, "Content-Type", "application/json", "X-Shopify-Topic", "orders/paid", "X-Shopify-Event-Id", "e1", "X-Shopify-Shop-Domain", "acme.example")},
		"activitypub.inbox": {"/actors/alice/inbox", `{"id":"https://there.example/a/1","type":"Like","actor":"https://there.example/bob","object":"https://here.example/o/1","order":"9911"}`, []string{"Content-Type", "application/activity+json"}},
		"default of A2A":    {"/agent", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"pay"}],"metadata":{"order":"9911"}}}}`, known},
		"tools":             {"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"order_id":"9911","idempotency_key":"t"}}}`, append([]string{"MCP-Protocol-Version", "2025-11-25"}, known...)},
		"default of Forrst": {"/forrst", `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_1","call":{"function":"pay","version":"1.0.0","arguments":{"order_id":9911}},"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"k"}}]}`, known},
		"order.cancel":      {"/v1/commands", `{"tenant_id":"acme","actor_id":"alice","intent":{"entity":"order","action":"cancel"},"args":{"order_id":"9911"}}`, known},
	} {
		if status, _, body := do(t, http.MethodPost, s.data(c.path), c.body, c.header...); status >= 300 {
			t.Errorf("%s: %d, %s", door, status, body)
		}
	}
	_, _, body := do(t, http.MethodGet, s.admin("/v1/records?q=attribute:order%3D9911"), "")
	for _, part := range []string{`"webhook.github"`, `"webhook.shopify"`, `"activitypub.inbox"`, `"idempotency_key":"m-1"`, `"idempotency_key":"k"`, `"idempotency_key":"t"`, `"order.cancel"`} {
		if !strings.Contains(body, part) {
			t.Errorf("the order has no %s in %s", part, body)
		}
	}
}
