//go:build !race

// The race detector allocates for itself, and no number of bytes can be held to.

package service_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/service/auth"
)

const (
	// mostTimes is how many times its bytes a body may take in memory, garbage included.
	mostTimes = 8
	// fixed is what a request takes whatever its body, such as its connection, its record
	// and the answer, in bytes.
	fixed = 256 << 10
	// few is what as many parts as a body may have take, where a bound of them is what
	// keeps memory in proportion.
	few = 10 << 20
)

// A worstBody is posted to a door. SEQ in its body and header is a number of its own.
type worstBody struct {
	door, body string
	header     []string
	sign       func(body string, header []string) []string // may be nil
	counted    bool                                        // it has as many parts as it may have
}

// TestWorstBodies posts to every door what costs most to read, as far as somebody gets who
// has no secret and made up a credential, or has one and means ill.
func TestWorstBodies(t *testing.T) {
	s, as := openDoors(t)
	seq := 0
	for name, c := range worstBodies(t, as) {
		t.Run(name, func(t *testing.T) {
			size, most := len(c.body), uint64(mostTimes*len(c.body)+fixed)
			if c.counted {
				most = few
			}
			status, answer, allocated := 0, int64(0), uint64(math.MaxUint64)
			seq++
			for try := range 3 {
				body := strings.ReplaceAll(c.body, "SEQ", strconv.Itoa(seq))
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.data(c.door), bytes.NewReader([]byte(body)))
				if err != nil {
					t.Fatal(err)
				}
				header := c.header
				if c.sign != nil {
					header = c.sign(body, header)
				}
				r.Header.Set("Content-Type", "application/json")
				for i := 0; i < len(header); i += 2 {
					r.Header.Set(header[i], strings.ReplaceAll(header[i+1], "SEQ", strconv.Itoa(seq)))
				}
				var before, after runtime.MemStats
				if try > 0 {
					runtime.GC() // twice, because what is in pools belongs to the bodies before
					runtime.GC()
				}
				runtime.ReadMemStats(&before)
				resp, err := stage.Direct.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				var told bytes.Buffer
				answer, err = io.Copy(&told, io.LimitReader(resp.Body, 1<<20))
				_ = resp.Body.Close()
				runtime.ReadMemStats(&after)
				if status = resp.StatusCode; err != nil || status == http.StatusRequestEntityTooLarge && strings.Contains(told.String(), "too_large") || status == http.StatusNotFound {
					t.Fatalf("nothing has read it: %d %.200s, %v", status, told.Bytes(), err)
				}
				if try > 0 { // the first one is kept, and sent on meanwhile
					allocated = min(allocated, after.TotalAlloc-before.TotalAlloc)
				}
				if allocated <= most { // further ones could only take less
					break
				}
			}
			t.Logf("%d: %d bytes took %.1f times that in memory; the answer has %d", status, size, (float64(allocated)-fixed)/float64(size), answer)
			if allocated > most || answer > int64(size+fixed) {
				t.Errorf("%d: %d bytes took %d in memory, garbage included, and the answer has %d", status, size, allocated, answer)
			}
		})
	}
}

// openDoors starts a service with one door of each kind, and returns the credential of a
// caller that it knows.
func openDoors(t *testing.T) (s *running, as []string) {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(upstream.Close)
	dir := t.TempDir()
	token, sum := auth.NewToken()
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"evidence.key": string(keys.Text()), "secret": hookSecret, "token": "a token for handshakes", "hex": strings.Repeat("ab", 32), "session": base64.StdEncoding.EncodeToString(make([]byte, 32)), "schema": `{"properties":{"amount":{"minimum":1}}}`,
		"base64": "whsec_" + base64.StdEncoding.EncodeToString([]byte(hookSecret)), "public": "whpk_" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"commands.yaml": fmt.Sprintf("version: 1\ncommands: [{entity: order, action: ship, handler: {url: %q}}]\n", upstream.URL),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var text strings.Builder
	text.WriteString(`
store: {url: "memory:"}
auth: {default_tenant: acme, tokens: [{name: alice, tenant: acme, sha256: SUM, rights: ['*', commerce.users]}]}
operations: [{name: payments, on_failure: retry}, {name: default}, {name: messages}, {name: tools}]
commands:
  registry: DIR/commands.yaml
  whatsapp: {path: /messages, verify_token_file: DIR/token, app_secret_files: [DIR/secret], mapper_url: UP, numbers: [{phone_number_id: "1", tenant: acme}], reply_url: UP, reply_secret_files: [DIR/base64]}
evidence: {key_file: DIR/evidence.key}
activitypub:
  - {actors_url: "https://social.example/actors/{actor}", shared_inbox: /inbox, actors: [alice], upstream: UP, instances: [{host: proto.example, unsigned: allow}]}
forrst:
  - {path: /forrst, upstream: UP, functions: [{name: pay, versions: [1.0.0], operation: payments, arguments: [{file: DIR/schema}]}]}
a2a:
  - {path: /agent, upstream: UP, operation: messages}
mcp:
  - {path: /mcp, upstream: UP, operation: tools, tools: [{name: refund, key_fields: [/a]}]}
archive: {dir: DIR}
commerce: {path: /commerce, session_key_files: [DIR/session], charge_url: UP, origin: shop, apply_url: UP, send_url: UP}
routes:
  - {match: POST /pay, upstream: UP, operation: payments}
webhooks:
`)
	for source, secret := range webhookSources {
		text.WriteString(fmt.Sprintf("  - {path: /%s, source: %s, secret_files: [DIR/%s], upstream: UP%s}\n", source, source, secret, map[bool]string{true: ", verify_token_file: DIR/token"}[source == "whatsapp"]+
			map[bool]string{true: `, url: "` + hookURL + `"`}[source == "square"]))
	}
	s = start(t, write(t, strings.NewReplacer("UP", upstream.URL, "DIR", dir, "SUM", sum).Replace(text.String())))
	return s, []string{"Authorization", "Bearer " + token}
}

// TestBodiesOfTheAdminListener holds the sentence of docs/security.md "The bodies of requests
// are bounded as on the data listener, by a budget of their own ..."
func TestBodiesOfTheAdminListener(t *testing.T) {
	s := start(t, write(t, "store: {url: 'memory:'}\nlimits: {total_bytes: 1MiB, tenant_bytes: 1MiB, principal_bytes: 1MiB}\n"))
	large := strings.Repeat(" ", 1<<20+1)
	for _, path := range []string{"/ui/answer", "/v1/explain", "/v1/records/x/settle"} {
		status, _, text := do(t, "POST", s.admin(path), large, "Content-Type", "application/json")
		if status != http.StatusRequestEntityTooLarge || !strings.Contains(text, "over_budget") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}
