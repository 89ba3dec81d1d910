package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/stage"
)

// A store that no service has open is asked with the keys of its evidence log: then what was purged
// or released before counts, and nothing in the directory changes.
func TestAStoreIsAskedWithItsLog(t *testing.T) {
	t.Parallel()
	file, dir, engine, _, end := evidentStore(t)
	pay := func(tenant, key string) semel.ID {
		t.Helper()
		call := command(key, "cmd-"+key, "p")
		call.Tenant = tenant
		ans, err := engine.Begin(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		if err := ans.Attempt.Complete(t.Context(), semel.Result{Data: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		return ans.Attempt.ID()
	}
	purge := func(id semel.ID) {
		t.Helper()
		if err := engine.Purge(t.Context(), id, semel.Removal{Who: "olga", Reason: "asked", Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	purge(pay("acme", "order-1"))
	pay("acme", "order-1")
	purge(pay("", "order-2")) // names in the log are those of a tenant
	end()
	signed := filepath.Join(dir, "evidence.key.signed")
	if err := os.Remove(signed); err != nil {
		t.Fatal(err)
	}
	run := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := semelWith(t, "", args...)
		if code != want {
			t.Fatalf("%q: exit %d, %s%s", args, code, out, errs)
		}
		return out + errs
	}
	for _, args := range [][]string{{"why", "order-1"}, {"records", "get", "--json", "order-1"}, {"records", "list", "--json", "order-1"}} {
		if out := run(ExitOK, append(args, "--config", file)...); !strings.Contains(out, "executed once; before that it was begun once, executed once, and purged at ") || !strings.Contains(out, " by olga: asked") {
			t.Errorf("%q says\n%s", args, out)
		}
	}
	if out := run(ExitNotFound, "why", "order-2", "--config", file); !strings.Contains(out, "is gone: it was purged or has expired") {
		t.Error(out)
	}
	if out := run(ExitOK, "why", "order-1", "--store", "pebble:"+filepath.Join(dir, "store")); !strings.Contains(out, "whether an earlier record of it was purged is not known here") {
		t.Errorf("without the keys it says\n%s", out)
	}
	if _, err := os.Stat(signed); !os.IsNotExist(err) {
		t.Error("a command that only looks has written beside the keys", err)
	}
}

// Asked of a service, why says where payloads differ, of several calls and of refused deliveries, and
// a list has the service's verdicts.
func TestWhySaysWherePayloadsDiffer(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	t.Cleanup(upstream.Close)
	store := "pebble:" + filepath.Join(t.TempDir(), "store")
	data, admin, stop := servingUntil(t, fmt.Sprintf(`api: 'off'
store: {url: '%s'}
operations: [{name: pay, keep_payload: true}]
routes: [{match: POST /payments, upstream: '%s', operation: pay, key: required, attributes: {order: json:/order}}]
`, store, upstream.URL))
	pay := func(key, body string, want int) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, data+"/payments", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
		resp, err := stage.Direct.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, _ := io.ReadAll(resp.Body); resp.StatusCode != want {
			t.Fatalf("%d, %s", resp.StatusCode, text)
		}
	}
	pay("pay-1", `{"order":"9911","amount":42,"to":"shop"}`, http.StatusOK)
	pay("pay-2", `{"order":"9911","amount":43,"to":"shop"}`, http.StatusOK)
	pay("pay-1", `{"order":"9911","amount":42,"to":"thief"}`, http.StatusUnprocessableEntity)
	run := func(args ...string) string {
		t.Helper()
		code, out, errs := semelWith(t, "", args...)
		if code != ExitOK {
			t.Fatalf("%q: exit %d, %s", args, code, errs)
		}
		return out
	}
	check := func(where []string) {
		t.Helper()
		out := run(append([]string{"why", "9911"}, where...)...)
		head, _, _ := strings.Cut(out, "\n")
		if !strings.HasPrefix(head, "9911: 2 calls, executed twice: pay-1 at ") || !strings.Contains(head, "; their payloads differ in /amount") {
			t.Errorf("asked with %q, it begins with %s", where, head)
		}
		if !strings.Contains(out, "  conflicts   1 asked for something else, in /to\n") {
			t.Errorf("asked with %q, it doesn't say in what the refused payload differed:\n%s", where, out)
		}
		for line := range bytes.Lines([]byte(run(append([]string{"records", "list", "--json"}, where...)...))) {
			var rec recordLine
			if err := json.Unmarshal(line, &rec); err != nil || rec.Verdict == nil || rec.Verdict.Says == "" || !strings.HasPrefix(rec.Verdict.Retry, "gets the recorded answer, until ") {
				t.Errorf("%v: %s", err, line)
			}
		}
	}
	check([]string{"--url", admin})
	stop()
	check([]string{"--store", store})
}
