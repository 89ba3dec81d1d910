package service_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/service/auth"
)

// TestCommands delivers commands to a service whose registry sends them upstream.
func TestCommands(t *testing.T) {
	var hits atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		if body, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(body), `"idempotency_key":"ids1:`) {
			t.Errorf("the upstream got %s, %v", body, err)
		}
		fmt.Fprint(w, `{"summary":"Cancelled","outcome":{"order":"o-1"}}`)
	}))
	defer upstream.Close()
	dir := t.TempDir()
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token, sum := auth.NewToken()
	s := start(t, write(t, fmt.Sprintf(`
store: {url: "memory:"}
auth: {tokens: [{name: alice, tenant: acme, sha256: %q, rights: ['orders:cancel']}]}
commands: {registry: %q}
evidence: {key_file: %q}
`, sum, file("commands.yaml", fmt.Sprintf(`
version: 1
commands:
  - {entity: order, action: cancel, rights: {execute: ['orders:cancel']}, handler: {url: %q}}
  - {entity: order, action: ship, rights: {execute: ['orders:ship']}, handler: {url: %q}}
  - {entity: order, action: mark, description: Mark an order, class: I2, window: 1m, justification: marking twice is harmless, command_kind: note,
     binding: {principal: effective_actor, acting: ['orders:retry']}, redact: [{path: note, unless: 'orders:read'}], handler: {url: %q}}
`, upstream.URL, upstream.URL, upstream.URL)), file("evidence.key", string(keys.Text())))))
	send := func(action string, headers ...string) (int, string) {
		t.Helper()
		status, _, body := do(t, http.MethodPost, s.data("/v1/commands"), `{"tenant_id":"acme","actor_id":"alice","intent":{"entity":"order","action":"`+action+`","target":"o-1"}}`, headers...)
		return status, body
	}
	known := []string{"Authorization", "Bearer " + token}
	for i, decision := range []string{"first_seen", "duplicate_replayed"} {
		status, body := send("cancel", known...)
		if status != http.StatusOK || !strings.Contains(body, `"summary":"Cancelled"`) || !strings.Contains(body, `"decision":"`+decision+`"`) || hits.Load() != 1 {
			t.Errorf("delivery %d: %d, %s after %d executions", i, status, body, hits.Load())
		}
	}
	if status, body := send("ship", known...); status != http.StatusForbidden {
		t.Errorf("without the right: %d, %s", status, body)
	}
	if status, body := send("cancel"); status != http.StatusUnauthorized {
		t.Errorf("nobody: %d, %s", status, body)
	}
	for _, line := range []string{
		`level=INFO msg=delivery door=ids operation=order.cancel decision=execute `, ` command.command_id=cmd_`, ` command.tenant_id=acme command.intent=order.cancel command.correlation_id=cmd_`,
		` command_status=executed command_decision=first_seen reason=""`, ` command_status=executed command_decision=duplicate_replayed reason=""`,
	} {
		if !strings.Contains(s.log.String(), line) {
			t.Errorf("no line with %s:\n%s", line, s.log)
		}
	}
	t.Run("the declarations can be read from the service", func(t *testing.T) {
		clause.Proves(t, "IDS-VI.5")
		var got map[string]any
		_, _, body := do(t, http.MethodGet, s.data("/v1/operations/order.mark"), "", known...)
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err, body)
		}
		want := map[string]any{
			"entity": "order", "action": "mark", "description": "Mark an order", "justification": "marking twice is harmless", "critical": false, "command_kind": "note",
			"binding": map[string]any{"principal": "effective_actor", "acting": []any{"orders:retry"}}, "redact": []any{map[string]any{"path": "note", "unless": "orders:read"}},
		}
		if !reflect.DeepEqual(got["command"], want) || got["class"] != "I2" || got["window_ms"] != 60000.0 || got["shields"] == nil {
			t.Errorf("%s", body)
		}
		if _, _, body := do(t, http.MethodGet, s.data("/v1/operations/default"), "", known...); strings.Contains(body, `"command"`) || !strings.Contains(body, `"window_ms"`) {
			t.Errorf("%s", body)
		}
		if _, _, body := do(t, http.MethodGet, s.data("/v1/operations"), "", known...); strings.Count(body, `"command":{`) != 3 || strings.Contains(body, upstream.URL) {
			t.Errorf("%s", body)
		}
	})
	// The execution API is no way around the gateway.
	for _, operation := range []string{"order.cancel", "ids.message", "semel.dispatch/billing"} {
		if status, _, body := do(t, http.MethodPost, s.data("/v1/operations/"+url.PathEscape(operation)+"/executions"), `{"key":"k"}`, known...); status != http.StatusNotFound {
			t.Errorf("an execution of %s is begun: %d, %s", operation, status, body)
		}
	}
	if hits.Load() != 1 {
		t.Errorf("%d executions", hits.Load())
	}
}
