package service_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/service/auth"
)

// An answer under a key that callers share comes from the place where the call was sent,
// not from somebody who was faster.
func TestAnswersToSharedKeysCanNotBeForged(t *testing.T) {
	var runs atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		_, _ = io.WriteString(w, "real")
	}))
	defer up.Close()
	s := start(t, write(t, fmt.Sprintf(`
store: {url: 'memory:'}
auth:
  default_tenant: acme
  tokens: [{name: alice, sha256: %s}, {name: bob, sha256: %s}]
operations:
  - {name: shared, share: tenant}
  - {name: both, share: tenant, api: true}
  - {name: invoice, share: tenant}
routes:
  - {match: POST /shared, upstream: '%s', operation: shared}
  - {match: POST /both, upstream: '%s', operation: both}
`, auth.HashToken("alice"), auth.HashToken("bob"), up.URL, up.URL)))
	alice, bob := []string{"Authorization", "Bearer alice"}, []string{"Authorization", "Bearer bob"}
	forged := semelhttp.NewResult(200, http.Header{}, []byte("forged"))
	cookie := append(forged.Data[:len(forged.Data)-len("forged")-1:len(forged.Data)-len("forged")-1], "\x00\x0aSet-Cookie\x0fsession=mallory\xffforged"...)
	begin := func(operation, key string, as []string) (int, string, string) {
		t.Helper()
		hash := fmt.Sprintf("2:%x", sha256.Sum256([]byte(key)))
		status, _, text := do(t, "POST", s.data("/v1/operations/"+operation+"/executions"), `{"key":"`+key+`","payload_hash":"`+hash+`"}`, as...)
		var begun struct{ Execution string }
		_ = json.Unmarshal([]byte(text), &begun)
		return status, begun.Execution, text
	}
	t.Run("an operation of a route is not begun over the API", func(t *testing.T) {
		if status, _, text := begin("shared", "k1", bob); status != http.StatusNotFound || !strings.Contains(text, "unknown_operation") {
			t.Error(status, text)
		}
		if status, _, text := do(t, "POST", s.data("/v1/batch"), `{"items":[{"begin":{"operation":"shared","key":"k1"}}]}`, bob...); !strings.Contains(text, "unknown_operation") {
			t.Error(status, text)
		}
		if status, _, text := do(t, "POST", s.data("/shared"), "{}", append(alice, "Idempotency-Key", "k1")...); status != 200 || text != "real" {
			t.Error(status, text)
		}
	})
	t.Run("and where it may be, a route gives nothing of it", func(t *testing.T) {
		status, execution, text := begin("both", "k2", bob)
		if status != http.StatusCreated {
			t.Fatal(status, text)
		}
		post := func() (int, http.Header, string) {
			return do(t, "POST", s.data("/both"), "{}", append(alice, "Idempotency-Key", "k2")...)
		}
		if status, _, text := post(); status != http.StatusConflict || !strings.Contains(text, `"code":"other_door"`) {
			t.Error("in flight:", status, text)
		}
		result := `{"result_base64":"` + base64.StdEncoding.EncodeToString(cookie) + `"}`
		if status, _, text := do(t, "POST", s.data("/v1/executions/"+execution+"/complete"), result, bob...); status != 200 {
			t.Fatal(status, text)
		}
		before := runs.Load()
		if status, header, text := post(); status != http.StatusConflict || header.Get("Set-Cookie") != "" || !strings.Contains(text, `"code":"other_door"`) || strings.Contains(text, "forged") {
			t.Error(status, header, text)
		}
		if runs.Load() != before {
			t.Error("it was executed")
		}
		if status, _, text := do(t, "GET", s.data("/problems/other_door"), ""); status != 200 {
			t.Error("the problem has no page:", status, text)
		}
	})
	t.Run("nor does the API of what a route recorded", func(t *testing.T) {
		if status, _, text := do(t, "POST", s.data("/both"), "{}", append(alice, "Idempotency-Key", "k3")...); status != 200 {
			t.Fatal(status, text)
		}
		if status, _, text := begin("both", "k3", bob); status != http.StatusConflict || !strings.Contains(text, `"code":"other_door"`) || strings.Contains(text, `"record"`) {
			t.Error(status, text)
		}
	})
	t.Run("a stranger takes no shared key", func(t *testing.T) {
		for _, header := range credentials {
			if status, _, text := begin("invoice", "k4", header); status != http.StatusUnauthorized {
				t.Error(status, text)
			}
			if status, _, text := do(t, "POST", s.data("/shared"), "{}", append([]string{"Idempotency-Key", "k5"}, header...)...); status < 400 {
				t.Error("at a route:", status, text)
			}
		}
		if status, _, text := begin("invoice", "k4", alice); status != http.StatusCreated {
			t.Error(status, text)
		}
	})
}
