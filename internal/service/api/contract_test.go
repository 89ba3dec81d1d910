package api

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
)

var update = flag.Bool("update", false, "write openapi.json anew")

// contract checks answers against the served description. It supports as much of JSON
// Schema as the description uses, and fails on anything else.
type contract struct {
	spec map[string]any

	mu   sync.Mutex
	seen map[string]bool // operation id and status
}

// newContract reads what the server says about itself.
func newContract(t *testing.T, base string) *contract {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/openapi.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer shop")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	c := &contract{seen: map[string]bool{}}
	if err := json.NewDecoder(res.Body).Decode(&c.spec); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *contract) operations() map[string]map[string]any {
	all := map[string]map[string]any{}
	for path, methods := range c.spec["paths"].(map[string]any) {
		for method, op := range methods.(map[string]any) {
			all[strings.ToUpper(method)+" "+path] = op.(map[string]any)
		}
	}
	return all
}

var param = regexp.MustCompile(`\{[^}]+\}`)

// find is the operation for a request, or nil.
func (c *contract) find(method, path string) map[string]any {
	path, _, _ = strings.Cut(path, "?")
	var best map[string]any
	for route, op := range c.operations() {
		pattern := "^" + param.ReplaceAllString(route, "[^/]+") + "$"
		if regexp.MustCompile(pattern).MatchString(method+" "+path) && (best == nil || !strings.Contains(route, "{")) {
			best = op
		}
	}
	return best
}

func (c *contract) answer(t *testing.T, method, path string, g *got) {
	t.Helper()
	op := c.find(method, path)
	if op == nil {
		return // no endpoint: the answers are tested on their own
	}
	status := strconv.Itoa(g.Status)
	answer, ok := op["responses"].(map[string]any)[status].(map[string]any)
	if !ok {
		t.Errorf("%s %s: status %s is not described", method, path, status)
		return
	}
	c.mu.Lock()
	c.seen[op["operationId"].(string)+" "+status] = true
	c.mu.Unlock()
	content, _ := answer["content"].(map[string]any)
	if content == nil {
		if len(g.Raw) > 0 {
			t.Errorf("%s %s: a body where none is described", method, path)
		}
		return
	}
	media, ok := content[g.Header.Get("Content-Type")].(map[string]any)
	if !ok {
		t.Errorf("%s %s: %s is not described for status %s", method, path, g.Header.Get("Content-Type"), status)
		return
	}
	if slices.Contains([]string{"text/event-stream", exportType}, g.Header.Get("Content-Type")) {
		return
	}
	var body any
	if err := json.Unmarshal(g.Raw, &body); err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return
	}
	for _, fault := range c.faults(media["schema"].(map[string]any), body, "body") {
		t.Errorf("%s %s, status %s: %s", method, path, status, fault)
	}
}

// faults lists where v doesn't match the schema.
func (c *contract) faults(schema map[string]any, v any, at string) []string {
	if ref, ok := schema["$ref"].(string); ok {
		target := any(c.spec)
		for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			target = target.(map[string]any)[step]
		}
		return c.faults(target.(map[string]any), v, at)
	}
	var faults []string
	bad := func(format string, args ...any) { faults = append(faults, at+": "+fmt.Sprintf(format, args...)) }
	for word := range schema {
		if !slices.Contains([]string{
			"type", "format", "properties", "required", "additionalProperties", "items", "enum", "description", "examples", "contentEncoding",
			"minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems",
		}, word) {
			bad("the schema uses %s, which this test does not know", word)
		}
	}
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, v) {
		bad("%v is none of %v", v, enum)
	}
	switch kind := schema["type"]; kind {
	case nil:
	case "object":
		object, ok := v.(map[string]any)
		if !ok {
			bad("not an object")
			break
		}
		props, _ := schema["properties"].(map[string]any)
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := object[name.(string)]; !ok {
				bad("%s is missing", name)
			}
		}
		for name, member := range object {
			if prop, ok := props[name].(map[string]any); ok {
				faults = append(faults, c.faults(prop, member, at+"."+name)...)
			} else if more, ok := schema["additionalProperties"].(map[string]any); ok {
				faults = append(faults, c.faults(more, member, at+"."+name)...)
			} else {
				bad("%s is not described", name)
			}
		}
	case "array":
		list, ok := v.([]any)
		if !ok {
			bad("not an array")
			break
		}
		for i, item := range list {
			faults = append(faults, c.faults(schema["items"].(map[string]any), item, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case "string":
		if _, ok := v.(string); !ok {
			bad("%v is not a string", v)
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			bad("%v is not a boolean", v)
		}
	case "integer", "number":
		if f, ok := v.(float64); !ok || kind == "integer" && f != float64(int64(f)) {
			bad("%v is not of type %s", v, kind)
		}
	default:
		bad("the type is %v", kind)
	}
	return faults
}

func TestDescriptionIsCurrent(t *testing.T) {
	w := newWorld(t)
	if *update {
		if err := os.WriteFile("openapi.json", w.api.OpenAPI(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(file) != string(w.api.OpenAPI()) {
		t.Error("openapi.json is not what is served: run go test ./internal/service/api -run TestDescriptionIsCurrent -update")
	}
}

func TestEveryDecisionIsDescribed(t *testing.T) {
	var spec struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Enum []semel.Decision }
			}
		}
	}
	if err := json.Unmarshal(newWorld(t).api.OpenAPI(), &spec); err != nil {
		t.Fatal(err)
	}
	described := spec.Components.Schemas["DecidedEvent"].Properties["decision"].Enum
	for _, d := range semel.Decisions() {
		if !slices.Contains(described, d) {
			t.Errorf("%q is not among %q", d, described)
		}
	}
}

// TestEveryEndpointIsDescribed calls all endpoints. send compares their answers with the
// description, and no endpoint may be missing.
func TestEveryEndpointIsDescribed(t *testing.T) {
	w, _, _ := evidenceWorld(t, func(o *Options) { o.Explain = explainAll })
	x := w.begin("operator", "charge", "a")
	w.replay("operator", "charge", "a").want(409)
	w.on(x, "operator", "renew", "").want(200)
	w.on(x, "operator", "effects", `{"name":"e"}`).want(201)
	w.on(x, "operator", "effects/settle", `{"name":"e","state":"confirmed","result":{"any":[1,"thing",null]}}`).want(200)
	w.on(x, "operator", "effects", `{"name":"e"}`).want(200)
	w.on(x, "operator", "complete", `{"result":{"any":[1,"thing",null]}}`).want(200)
	w.replay("operator", "charge", "a").want(200)
	path := "/v1/records/" + x.str("record.id")
	w.send("operator", "GET", path, "").want(200)
	w.send("operator", "GET", "/v1/records", "").want(200)
	w.send("operator", "GET", "/v1/lookup?q=a", "").want(200)
	w.send("operator", "POST", path+"/purge", `{"reason":"r"}`).want(204)
	for _, end := range []string{"reject", "fail", "abort"} {
		w.on(w.begin("operator", "charge", end), "operator", end, `{"error":{"code":"c","message":"m"}}`).want(200)
	}
	w.on(w.begin("operator", "charge", "abandoned"), "operator", "abandon", `{"reason":"r"}`).want(200)
	for _, key := range []string{"settle", "release"} {
		x := w.begin("operator", "charge", key)
		w.on(x, "operator", "hold", `{"reason":"r"}`).want(200)
		body := `{"reason":"r"}`
		if key == "settle" {
			body = `{"reason":"r","outcome":"completed"}`
		}
		w.send("operator", "POST", "/v1/records/"+x.str("record.id")+"/"+key, body).want(200)
	}
	w.send("operator", "POST", "/v1/operations/confirmed/executions", `{"key":"k"}`).refused(428, "confirmation_required")
	waiting := w.send("operator", "GET", "/v1/records?q=operation:confirmed", "").want(200)
	w.send("operator", "POST", "/v1/records/"+waiting.str("records.0.id")+"/confirm", `{"reason":"r"}`).want(200)
	asked := w.begin("operator", "reconciled", "k")
	w.on(asked, "operator", "hold", `{"reason":"r"}`).want(200)
	w.send("operator", "POST", "/v1/records/"+asked.str("record.id")+"/reconcile", `{}`).want(200)
	undone := w.begin("operator", "refundable", "k")
	sent := w.on(undone, "operator", "complete", `{"messages":[{"name":"a","destination":"d"},{"name":"b","destination":"d"}]}`).want(200)
	path = "/v1/records/" + undone.str("record.id")
	w.send("operator", "POST", path+"/compensate", `{"reason":"r"}`).want(200)
	for i, what := range []string{"replay", "discard"} {
		id := sent.str("record.messages." + strconv.Itoa(i) + ".id")
		w.park(undone.str("record.id"), id)
		w.send("operator", "POST", path+"/messages/"+id+"/"+what, `{"reason":"r"}`).want(200)
	}
	w.send("operator", "GET", "/v1/operations", "").want(200)
	w.send("operator", "GET", "/v1/operations/rare", "").want(200)
	w.send("operator", "GET", "/v1/operations/rare/choices", "").want(200)
	w.send("operator", "POST", "/v1/batch", `{"items":[{"begin":{"operation":"charge","key":"k"}}]}`).want(200)
	w.send("root", "GET", "/v1/figures", "").want(200)
	w.send("root", "GET", "/v1/nodes", "").want(200)
	w.send("root", "GET", "/v1/evidence/entries?name=req-0", "").want(200)
	w.send("root", "GET", "/v1/evidence/export", "").want(200)
	w.send("root", "GET", "/v1/evidence/checkpoint", "").want(200)
	w.send("root", "POST", "/v1/evidence/verify", "").want(200)
	w.send("operator", "GET", "/v1/conflicts", "").want(200)
	w.send("operator", "GET", path+"/payloads", "").want(200)
	w.send("operator", "POST", "/v1/explain", `{"request":"GET http://localhost/a"}`).want(200)
	r := w.follow("operator", "")
	r.close()

	c := w.checks[w.admin.URL]
	for route, op := range c.operations() {
		for status := range op["responses"].(map[string]any) {
			if name := op["operationId"].(string); status[0] == '2' && !c.seen[name+" "+status] && name != "streamDecisions" {
				t.Errorf("%s was not answered with %s", route, status)
			}
		}
	}
	if n := len(c.operations()); n != 35 {
		t.Errorf("%d endpoints", n)
	}
}
