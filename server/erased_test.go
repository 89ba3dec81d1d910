package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/internal/redistest"
	"github.com/semelhq/semel/internal/servertest"
)

// feed is what a reader of the decisions of a node gets who missed all of them.
func feed(t *testing.T, s *service) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // the stream doesn't end
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.admin("/v1/decisions"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Last-Event-ID", "1")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		text.WriteString(lines.Text())
	}
	return text.String()
}

// Who was erased is in no list of any node within seconds, and in none after a restart.
func TestErasedIsErasedOnAllNodes(t *testing.T) {
	t.Parallel()
	const person = "PERSON-anna.schmidt@example.com-1977"
	for name, open := range map[string]func(t *testing.T) (url string, nodes int){
		"embedded":   func(t *testing.T) (string, int) { return "pebble:" + filepath.Join(t.TempDir(), "data"), 1 },
		"PostgreSQL": func(t *testing.T) (string, int) { pg := pgtest.Shared(t); return pg.URL(pg.Database(t)), 2 },
		"Redis":      func(t *testing.T) (string, int) { return redistest.Start(t, "").URL(), 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, n := open(t)
			upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusCreated)
			}))
			t.Cleanup(upstream.Close)
			file := fmt.Sprintf("api: 'off'\nstore: {url: '%s', migrate: %v}\noperations: [{name: pay, keep_payload: true, EVIDENCE}]\nroutes: [{match: POST /pay, upstream: '%s', operation: pay}]\n", url, name == "PostgreSQL", upstream.URL)
			level, signed := "", ""
			if name != "Redis" { // which has no evidence, and nothing to erase in it
				keys, err := evidence.GenerateKeys("example.com/log")
				key := filepath.Join(t.TempDir(), "evidence.key")
				if err == nil {
					err = os.WriteFile(key, keys.Text(), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				level, signed = "evidence: decisions", fmt.Sprintf("evidence: {key_file: %s, signed_file: SIGNED}\n", key)
			}
			node := func() *service {
				mine := strings.Replace(signed, "SIGNED", filepath.Join(t.TempDir(), "signed"), 1)
				return start(t, write(t, strings.Replace(file, ", EVIDENCE", strings.TrimSuffix(", "+level, ", "), 1)+mine))
			}
			nodes := make([]*service, n)
			for i := range nodes {
				nodes[i] = node()
			}
			post := func(s *service, key, body string, want int) {
				t.Helper()
				if status, _, text := do(t, "POST", s.data("/pay"), body, "Idempotency-Key", key, "Authorization", "Bearer shop"); status != want {
					t.Fatalf("%s: %d %s", key, status, text)
				}
			}
			for _, key := range []string{person, "OTHER-0123456789abcdef"} {
				for _, s := range nodes {
					post(s, key, "1", 201)
					post(s, key, "1", 201)
					post(s, key, "2", 422)
				}
			}
			lists := func(s *service) string {
				var all strings.Builder
				for _, path := range []string{"/v1/conflicts", "/v1/figures?minutes=60"} {
					status, _, text := do(t, "GET", s.admin(path), "")
					if status != 200 {
						t.Fatalf("%s: %d %s", path, status, text)
					}
					all.WriteString(text)
				}
				return all.String() + feed(t, s)
			}
			_, _, found := do(t, "GET", nodes[0].admin("/v1/records?q=key:"+person), "")
			var page struct{ Records []struct{ ID string } }
			if err := json.Unmarshal([]byte(found), &page); err != nil || len(page.Records) != 1 {
				t.Fatal(found, err)
			}
			id := page.Records[0].ID
			for i, s := range nodes {
				servertest.Eventually(t, "the person is in the lists of all nodes", func() error {
					if text := lists(s); !strings.Contains(text, person) || strings.Count(text, id) < 4 {
						return fmt.Errorf("node %d shows %s", i, text)
					}
					return nil
				})
			}
			if status, _, text := do(t, "POST", nodes[0].admin("/v1/records/"+id+"/purge"), `{"reason":"asked for","erase_evidence":true}`, "Content-Type", "application/json"); status/100 != 2 {
				t.Fatalf("%d %s", status, text)
			}
			gone := func(when string) {
				t.Helper()
				for i, s := range nodes {
					servertest.Eventually(t, when, func() error {
						text := lists(s)
						if strings.Contains(text, person) || strings.Contains(text, id) {
							return fmt.Errorf("node %d names the person: %s", i, text)
						}
						if !strings.Contains(text, "OTHER-0123456789abcdef") {
							return fmt.Errorf("node %d doesn't name others: %s", i, text)
						}
						return nil
					})
				}
			}
			gone("nobody names the person")
			for i, s := range nodes {
				s.stop()
				if err := <-s.done; err != nil {
					t.Fatal(err)
				}
				s.done <- nil
				nodes[i] = node()
			}
			gone("nobody names the person after a restart")
		})
	}
}
