package service_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"

	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/evidence"
)

// told is a delivery through a door in this test.
type told struct {
	door, path, body string
	header           []string
	operation        string
	// upstream: the program behind the door gets the trace context in the request.
	upstream bool
	// status is that of a delivery without a credential or a signature; zero: there is none.
	refused int
}

// everyDoor is a service with all doors on a store, and a delivery through each.
func everyDoor(t *testing.T, store, upstream string) (file string, deliveries []told) {
	t.Helper()
	const secret = "a webhook's secret"
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	file = write(t, strings.NewReplacer("STORE", store, "UP", upstream, "SECRET", put("secret", secret), "VERIFY", put("verify", "a token to verify"), "KEYS", put("evidence.key", string(keys.Text())),
		"REGISTRY", put("commands.yaml", "version: 1\ncommands:\n  - {entity: order, action: pay, rights: {execute: [pay]}, handler: {url: '"+upstream+"'}}\n")).Replace(`
store: {url: "STORE"}
auth: {default_tenant: acme, tokens: [{name: alice, sha256: 0c848abb03307b06cf70cd4e29c157dc81af5e94ab3eb1d0c59a120269572376, rights: [pay]}]}
operations: [{name: charge}, {name: watched}, {name: functions}, {name: messages}, {name: tools}, {name: begun}]
routes:
  - {match: POST /charges, upstream: UP, operation: charge}
  - {match: POST /watched, upstream: UP, operation: watched, mode: shadow}
forrst: [{path: /forrst, upstream: UP/forrst, functions: [{name: pay, versions: [1.0.0], operation: functions}]}]
a2a: [{path: /agent, upstream: UP/agent, operation: messages}]
mcp: [{path: /mcp, upstream: UP/mcp, operation: tools}]
webhooks: [{path: /hooks, source: github, secret_files: [SECRET], upstream: UP, mode: sync}]
activitypub: [{actors_url: "https://social.example/actors/{actor}", actors: [alice], upstream: UP/inbox, instances: [{host: there.example, unsigned: allow}], signatures: {allow_private: true}}]
commands:
  registry: REGISTRY
  whatsapp: {path: /wa, verify_token_file: VERIFY, app_secret_files: [SECRET], mapper_url: UP/map, numbers: [{phone_number_id: "106", rights: [pay]}]}
evidence: {key_file: KEYS}
`))
	alice, key := []string{"Authorization", "Bearer alice-secret"}, []string{"Authorization", "Bearer alice-secret", "Idempotency-Key", "0190163d-8694-739b-aea5-966c26f8ad91"}
	const wa = `{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"field":"messages","value":{"messaging_product":"whatsapp","metadata":{"display_phone_number":"1","phone_number_id":"106"},"messages":[{"from":"49170","id":"wamid.1","timestamp":"1700000000","type":"text","text":{"body":"pay"}}]}}]}]}`
	return file, []told{
		{door: "http", path: "/charges", body: "{}", header: key, operation: "charge", upstream: true, refused: 401},
		{door: "proxy", path: "/watched", body: "{}", header: key, operation: "watched", upstream: true},
		{door: "api", path: "/v1/operations/begun/executions", body: "{}", header: key, operation: "begun", refused: 401},
		{
			door: "forrst", path: "/forrst", header: alice, operation: "functions", upstream: true, refused: 401,
			body: `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r","call":{"function":"pay","version":"1.0.0","arguments":{}},"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"k"}}]}`,
		},
		{door: "a2a", path: "/agent/message:send", header: alice, operation: "messages", upstream: true, refused: 401, body: `{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"pay"}]}}`},
		{
			door: "mcp", path: "/mcp", header: append([]string{"MCP-Protocol-Version", "2025-11-25"}, alice...), operation: "tools", upstream: true, refused: 401,
			body: `{"jsonrpc":"2.0","id":"r","method":"tools/call","params":{"name":"pay","_meta":{"idempotency-key":"k"}}}`,
		},
		{door: "ids", path: "/v1/commands", header: alice, operation: "order.pay", upstream: true, refused: 401, body: `{"tenant_id":"acme","actor_id":"alice","intent":{"entity":"order","action":"pay","target":"7"}}`},
		{door: "webhook", path: "/hooks", body: "{}", header: signedAs(t, "github", secret, "{}", "X-GitHub-Delivery", "d1", "X-GitHub-Event", "push"), operation: "webhook.github", upstream: true, refused: 401},
		{
			door: "activitypub", path: "/actors/alice/inbox", header: []string{"Content-Type", "application/activity+json"}, operation: "activitypub.inbox",
			body: `{"id":"https://there.example/a/1","type":"Like","actor":"https://there.example/users/bob","object":"https://social.example/actors/alice"}`,
		},
		{door: "whatsapp", path: "/wa", body: wa, header: signedAs(t, "whatsapp", secret, wa), operation: "whatsapp.message", refused: 401},
	}
}

// worker is the program behind all doors. It keeps the trace contexts that it gets.
type worker struct {
	mu     sync.Mutex
	traces map[string]bool // by their ids
	more   chan struct{}   // there is another one
}

func (p *worker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if parts := strings.Split(r.Header.Get("Traceparent"), "-"); len(parts) == 4 {
		p.mu.Lock()
		p.traces[parts[1]] = true
		p.mu.Unlock()
		select {
		case p.more <- struct{}{}:
		default:
		}
	}
	switch r.URL.Path {
	case "/forrst":
		_, _ = io.WriteString(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r","result":{}}`)
	case "/agent/message:send":
		_, _ = io.WriteString(w, `{"task":{"id":"T1","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}`)
	case "/mcp":
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":"r","result":{"content":[]}}`)
	case "/map":
		w.WriteHeader(http.StatusNoContent)
	default:
		_, _ = io.WriteString(w, `{}`)
	}
}

func (p *worker) got(trace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.traces[trace]
}

// wait waits for a request with a trace.
func (p *worker) wait(t *testing.T, trace string) {
	t.Helper()
	for !p.got(trace) {
		select {
		case <-p.more:
		case <-t.Context().Done():
			t.Fatal("the request doesn't come")
		}
	}
}

// TestEveryDoorIsTraced: each delivery is a span of its caller's trace, which goes on behind
// the door; and a replay links to the execution, also after a restart. Each has one line in the
// log, with the same fields at every door.
func TestEveryDoorIsTraced(t *testing.T) {
	work := &worker{traces: map[string]bool{}, more: make(chan struct{}, 1)}
	upstream := httptest.NewServer(work)
	defer upstream.Close()
	exporter := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(exporter))
	file, deliveries := everyDoor(t, "pebble:"+t.TempDir()+"/data", upstream.URL)
	s := startTraced(t, file, provider)
	id := func(n, round int) string { return fmt.Sprintf("%031x%x", n+1, round) }
	deliver := func(round int) {
		t.Helper()
		for n, d := range deliveries {
			status, _, text := do(t, "POST", s.data(d.path), d.body, append(slices.Clip(d.header), "Traceparent", "00-"+id(n, round)+"-00f067aa0ba902b7-01", "X-Request-Id", "req-"+d.door)...)
			if status >= 400 && (d.door != "api" || round == 1) {
				t.Errorf("%s: %d %s", d.door, status, text)
			}
		}
	}
	deliver(1)
	inbox := slices.IndexFunc(deliveries, func(d told) bool { return d.door == "activitypub" })
	work.wait(t, id(inbox, 1)) // posted by the dispatcher, in the trace of its delivery
	first := s.log.String()
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	s.done <- nil
	s = startTraced(t, file, provider)
	deliver(2)
	for n, d := range deliveries {
		spans := map[int]tracetest.SpanStub{}
		for _, span := range exporter.GetSpans() {
			for round := 1; round <= 2; round++ {
				if span.SpanContext.TraceID().String() == id(n, round) && attributeOf(span, "semel.door") == d.door {
					if _, twice := spans[round]; twice {
						t.Errorf("%s: delivery %d has two spans", d.door, round)
					}
					spans[round] = span
				}
			}
		}
		if len(spans) != 2 {
			t.Errorf("%s: %d spans of 2 deliveries", d.door, len(spans))
			continue
		}
		kind := api.SpanKindServer
		if d.door == "webhook" || d.door == "activitypub" || d.door == "whatsapp" {
			kind = api.SpanKindConsumer
		}
		for round, span := range spans {
			if span.Parent.SpanID().String() != "00f067aa0ba902b7" || span.SpanKind != kind || span.Name != d.door+" "+d.operation || attributeOf(span, "semel.operation") != d.operation {
				t.Errorf("%s: delivery %d is %q, %v, %v of %v", d.door, round, span.Name, span.SpanKind, span.Attributes, span.Parent.SpanID())
			}
		}
		if d.upstream && !work.got(id(n, 1)) {
			t.Errorf("%s: the program behind it doesn't get the trace context", d.door)
		}
		if d.door == "proxy" { // which keeps no records in this mode
			continue
		}
		want := "replay"
		if d.door == "api" { // nobody has ended it
			want = "in_flight"
		}
		links := spans[2].Links
		if len(spans[1].Links) != 0 || len(links) != 1 || links[0].SpanContext.SpanID() != spans[1].SpanContext.SpanID() || links[0].SpanContext.TraceID() != spans[1].SpanContext.TraceID() {
			t.Errorf("%s: the links are %v, want one to %v", d.door, links, spans[1].SpanContext.SpanID())
		}
		if got := attributeOf(spans[2], "semel.decision"); got != want || attributeOf(spans[1], "semel.decision") != "execute" || attributeOf(spans[1], "semel.record") == "" || attributeOf(spans[1], "semel.attempt") != "1" {
			t.Errorf("%s: the second delivery got %s, after %v", d.door, got, spans[1].Attributes)
		}
	}
	for n, d := range deliveries {
		if d.refused != 0 {
			header := d.header[:0:0]
			for i := 0; i < len(d.header); i += 2 {
				if !strings.HasPrefix(d.header[i], "X-Hub") && d.header[i] != "Authorization" {
					header = append(header, d.header[i], d.header[i+1])
				}
			}
			if status, _, text := do(t, "POST", s.data(d.path), d.body, append(header, "Traceparent", "00-"+id(n, 3)+"-00f067aa0ba902b7-01", "X-Request-Id", "req-"+d.door)...); status != d.refused {
				t.Errorf("%s: without a credential %d %s", d.door, status, text)
			}
		}
	}
	linesOfDoors(t, deliveries, first, s.log.String(), id)
}

// linesOfDoors checks that each delivery has one line, with the same fields in the same order.
func linesOfDoors(t *testing.T, deliveries []told, first, then string, id func(n, round int) string) {
	t.Helper()
	name := regexp.MustCompile(` ([a-z_]+)=(?:"(?:[^"\\]|\\.)*"|\S*)`)
	var want []string
	for n, d := range deliveries {
		for round := 1; round <= 3; round++ {
			var found []string
			for line := range strings.Lines(first + then) {
				if strings.Contains(line, "msg="+door.Delivered+" door="+d.door+" ") && strings.Contains(line, " trace_id="+id(n, round)+" ") {
					found = append(found, line)
				}
			}
			if round == 3 && d.refused == 0 {
				continue
			}
			if len(found) != 1 {
				t.Errorf("%s: delivery %d has %d lines: %q", d.door, round, len(found), found)
				continue
			}
			line := found[0]
			var fields []string
			for _, m := range name.FindAllStringSubmatch(line[strings.Index(line, " door="):], -1) {
				fields = append(fields, m[1])
			}
			if want == nil {
				want = fields[:slices.Index(fields, "error")+1]
			}
			if len(fields) < len(want) || !slices.Equal(fields[:len(want)], want) {
				t.Errorf("%s: the line of delivery %d has %q, want %q", d.door, round, fields, want)
			}
			if strings.Contains(line, "level=ERROR") || strings.Contains(line, "0190163d") || strings.Contains(line, "alice-secret") || round < 3 && !strings.Contains(line, " request_id=") {
				t.Errorf("%s: %s", d.door, line)
			}
			if round == 2 && d.door != "proxy" && !strings.Contains(line, " executed_trace_id="+id(n, 1)+" ") {
				t.Errorf("%s: the line of the duplicate doesn't lead to the execution: %s", d.door, line)
			}
		}
	}
}

func attributeOf(span tracetest.SpanStub, name string) string {
	for _, a := range span.Attributes {
		if string(a.Key) == name {
			return a.Value.String()
		}
	}
	return ""
}
