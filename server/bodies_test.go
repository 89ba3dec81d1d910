//go:build !race

// The race detector allocates for itself, and no number of bytes can be held to.

package server_test

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/server/auth"
)

// repeat is a body of about size bytes: head, what item makes again and again with commas
// between, and tail.
func repeat(size int, head string, item func(i int) string, tail string) string {
	var b strings.Builder
	b.WriteString(head)
	for i := 0; b.Len() < size; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(item(i))
	}
	b.WriteString(tail)
	return b.String()
}

func the(item string) func(int) string { return func(int) string { return item } }

// names are members of an object, no two alike, in the order that costs most to put right.
func names(i int) string { return fmt.Sprintf(`"%05x":0`, 0xfffff-i) }

// TestWorstBodies posts to every door what costs most to read, as far as somebody gets who
// has no secret and made up a credential, or has one and means ill.
func TestWorstBodies(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer upstream.Close()
	dir := t.TempDir()
	token, sum := auth.NewToken()
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	const secret = "a webhook's secret"
	for name, text := range map[string]string{
		"evidence.key": string(keys.Text()), "secret": secret, "hex": strings.Repeat("ab", 32), "schema": `{"properties":{"amount":{"minimum":1}}}`,
		"commands.yaml": fmt.Sprintf("version: 1\ncommands: [{entity: order, action: ship, handler: {url: %q}}]\n", upstream.URL),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, write(t, strings.NewReplacer("UP", upstream.URL, "DIR", dir, "SUM", sum).Replace(`
store: {url: "memory:"}
auth: {default_tenant: acme, tokens: [{name: alice, tenant: acme, sha256: SUM, rights: ['*']}]}
operations: [{name: payments, on_failure: retry}, {name: default}]
commands: {registry: DIR/commands.yaml}
evidence: {key_file: DIR/evidence.key}
webhooks:
  - {path: /adyen, source: adyen, secret_files: [DIR/hex], upstream: UP}
  - {path: /github, source: github, secret_files: [DIR/secret], upstream: UP}
  - {path: /stripe, source: stripe, secret_files: [DIR/secret], upstream: UP}
  - {path: /whatsapp, source: whatsapp, secret_files: [DIR/secret], verify_token_file: DIR/secret, upstream: UP}
activitypub:
  - {actors_url: "https://social.example/actors/{actor}", shared_inbox: /inbox, actors: [alice], upstream: UP, instances: [{host: proto.example, unsigned: allow}]}
forrst:
  - {path: /forrst, upstream: UP, functions: [{name: pay, versions: [1.0.0], operation: payments, arguments: [{file: DIR/schema}]}]}
routes: [{match: POST /pay, upstream: UP, operation: payments}]
`)))
	call := func(arguments, more string) string {
		return `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r","call":{"function":"pay","arguments":` + arguments + `}` + more
	}
	const keyed = `,"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"k"}}]`
	const activity = `{"id":"https://proto.example/1","type":"Like","actor":"https://proto.example/u",`
	const envelope = `{"tenant_id":"acme","actor_id":"alice","intent":{"entity":"order","action":"ship","target":`
	as := []string{"Authorization", "Bearer " + token}
	signed := func(source, body string) []string {
		return signedAs(t, source, secret, body, "X-GitHub-Delivery", "d", "X-GitHub-Event", "push")
	}
	kinds := []string{"Content-Type", "application/activity+json"}
	for name, c := range map[string]struct {
		path, body string
		header     []string
	}{
		"adyen, items that aren't":   {"/adyen", repeat(4<<20-64, `{"notificationItems":[`, the(`{"NotificationRequestItem":1}`), `]}`), nil},
		"adyen, items unsigned":      {"/adyen", repeat(4<<20-512, `{"notificationItems":[`, the(`{"NotificationRequestItem":{"additionalData":{"hmacSignature":"coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0="},"pspReference":"p","eventCode":"e"}}`), `]}`), nil},
		"adyen, numbers":             {"/adyen", repeat(4<<20-64, `{"notificationItems":[`, the("1"), `]}`), nil},
		"adyen, members":             {"/adyen", repeat(4<<20-64, `{"notificationItems":[],`, names, `}`), nil},
		"github":                     {"/github", repeat(1<<20, `{`, names, `}`), nil},
		"github, signed members":     {"/github", repeat(900_000, `{`, names, `}`), []string{"signed", "github"}},
		"stripe":                     {"/stripe", repeat(1<<20, `{`, names, `}`), nil},
		"whatsapp":                   {"/whatsapp", repeat(1<<20, `{"entry":[`, the("1"), `]}`), nil},
		"whatsapp, signed entries":   {"/whatsapp", repeat(1<<20, `{"entry":[`, the(`{"changes":[1]}`), `]}`), []string{"signed", "whatsapp"}},
		"inbox, members":             {"/inbox", repeat(900_000, activity+`"object":{`, names, `}}`), kinds},
		"inbox, members of its own":  {"/inbox", repeat(900_000, activity+`"object":"x",`, names, `}`), kinds},
		"inbox, numbers":             {"/inbox", repeat(900_000, activity+`"object":[`, the("1e20"), `]}`), kinds},
		"inbox, objects":             {"/inbox", repeat(900_000, activity+`"object":[`, the(`{"b":0,"a":0}`), `]}`), kinds},
		"inbox, recipients":          {"/inbox", repeat(900_000, activity+`"object":"x","to":[`, the(`"a"`), `]}`), kinds},
		"inbox, proof":               {"/inbox", repeat(900_000, activity+`"object":"x","proof":{},"x":{`, names, `}}`), kinds},
		"inbox, unsigned":            {"/inbox", repeat(900_000, `{"id":"https://a.example/1","type":"Like","actor":"https://a.example/u","object":{`, names, `}}`), kinds},
		"forrst, extensions":         {"/forrst", repeat(1<<20-256, call(`{}`, `,"extensions":[`), the("1"), `]}`), as},
		"forrst, wrong extensions":   {"/forrst", repeat(1<<20-256, call(`{}`, `,"extensions":[`), the(`{"urn":"x","y":1}`), `]}`), as},
		"forrst, members":            {"/forrst", repeat(1<<20-256, call(`{}`, `,`), names, `}`), as},
		"forrst, long names":         {"/forrst", repeat(1<<20-60_000, call(`{}`, `,`), func(i int) string { return fmt.Sprintf(`"%d%s":0`, i, strings.Repeat("~", 50_000)) }, `}`), as},
		"forrst, members of a call":  {"/forrst", repeat(1<<20-256, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r","call":{`, names, `}}`), as},
		"forrst, arguments":          {"/forrst", repeat(1<<20-256, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r"`+keyed+`,"call":{"function":"pay","arguments":{`, names, `}}}`), as},
		"forrst, arguments in lists": {"/forrst", repeat(1<<20-256, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r"`+keyed+`,"call":{"function":"pay","arguments":{"a":[`, the("1"), `]}}}`), as},
		"commands, members":          {"/v1/commands", repeat(250<<10, envelope+`"o"},`, names, `}`), as},
		"commands, arguments":        {"/v1/commands", repeat(250<<10, envelope+`"o"},"args":{`, names, `}}`), as},
		"commands, targets":          {"/v1/commands", repeat(250<<10, envelope+`[`, the("1"), `]}}`), as},
		"route, members":             {"/pay", repeat(1<<20, `{`, names, `}`), append([]string{"Idempotency-Key", "k1"}, as...)},
		"route, numbers":             {"/pay", repeat(1<<20, `[`, the("1e20"), `]`), append([]string{"Idempotency-Key", "k2"}, as...)},
		"execution, members":         {"/v1/operations/default/executions", repeat(250<<10, `{"payload":{`, names, `}}`), append([]string{"Idempotency-Key", "k3"}, as...)},
		"execution, unknown":         {"/v1/operations/default/executions", repeat(250<<10, `{`, names, `}`), append([]string{"Idempotency-Key", "k3"}, as...)},
		"batch, numbers":             {"/v1/batch", repeat(250<<10, `{"items":[`, the("1"), `]}`), as},
		"batch, objects":             {"/v1/batch", repeat(250<<10, `{"items":[`, the("{}"), `]}`), as},
		"batch, payloads":            {"/v1/batch", repeat(1<<20, `{"items":[{"begin":{"operation":"default","key":"k5","payload":{`, names, `}}}]}`), as},
		"batch, members":             {"/v1/batch", repeat(250<<10, `{"items":[{`, names, `}]}`), as},
	} {
		t.Run(name, func(t *testing.T) {
			header := c.header
			if len(header) > 0 && header[0] == "signed" {
				header = signed(header[1], c.body)
			}
			do(t, http.MethodPost, s.data(c.path), c.body, header...) // pools and connections are made once
			status, answer, allocated := 0, "", uint64(math.MaxUint64)
			for range 3 { // the service has other things to do, too
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				status, _, answer = do(t, http.MethodPost, s.data(c.path), c.body, header...)
				runtime.ReadMemStats(&after)
				allocated = min(allocated, after.TotalAlloc-before.TotalAlloc)
			}
			if status == http.StatusRequestEntityTooLarge && strings.Contains(answer, "too_large") || status == http.StatusNotFound {
				t.Fatalf("nothing has read it: %d %.200s", status, answer)
			}
			most := 8.0
			if strings.HasPrefix(c.path, "/v1/") && c.path != "/v1/commands" {
				most = 20 // a payload is read and copied several times, one after the other
			}
			took, told := float64(allocated)/float64(len(c.body)), float64(len(answer))/float64(len(c.body))
			t.Logf("%d, %.1f times its bytes in memory and %.2f times in the answer", status, took, told)
			if took > most || told > 1 {
				t.Errorf("%d: it took %.1f times its bytes, garbage included, and the answer has %.2f times as many: %.200s", status, took, told, answer)
			}
		})
	}
}
