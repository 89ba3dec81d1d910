package extract

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/payload"
)

// look finds things in a request by a rule that must be valid.
func look(t *testing.T, spec Spec, target, kind, body, header string) (Found, *Rule) {
	t.Helper()
	spec.MaxKey, spec.Mode = 16, payload.Auto
	rule, err := New(spec)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", target, nil)
	r.Header.Set("Content-Type", kind)
	if header != "" {
		r.Header.Set("X-Key", header)
	}
	var p payload.Payload
	defer p.Release()
	how := payload.Rule{Mode: payload.Auto, Max: 1 << 20, Large: make(chan struct{}, 1)}
	if err := p.Hold(&how, r, []byte(body)); err != nil {
		t.Fatal(err)
	}
	found, err := rule.From(r, &p)
	if err != nil {
		t.Fatal(err)
	}
	return found, rule
}

func TestFrom(t *testing.T) {
	const asJSON, asForm = "application/json", "application/x-www-form-urlencoded"
	places := []string{"header:X-Key", "query:key", "form:key", "json:/key"}
	for name, c := range map[string]struct {
		target, kind, body, header string
		key, by, fault             string
	}{
		"a header":           {header: "k1", key: "k1", by: "header:X-Key"},
		"a query":            {target: "?key=k1", key: "k1", by: "query:key"},
		"a form":             {kind: asForm, body: "key=k1", key: "k1", by: "form:key"},
		"a body in JSON":     {kind: asJSON, body: `{"key":"k1"}`, key: "k1", by: "json:/key"},
		"two that agree":     {target: "?key=k1", header: "k1", key: "k1", by: "header:X-Key"},
		"two that differ":    {target: "?key=k2", header: "k1", fault: "header:X-Key and query:key differ"},
		"broken JSON":        {kind: asJSON, body: `{"key":`, header: "k1", fault: "isn't JSON"},
		"a closed body":      {kind: "image/png", body: "x", fault: "it can't be looked for"},
		"a header is enough": {kind: "image/png", body: "x", header: "k1", key: "k1", by: "header:X-Key"},
		"too long":           {target: "?key=12345678901234567", fault: "longer than this service accepts"},
		"not printable":      {target: "?key=%C3%BC", fault: "outside printable ASCII"},
		"none":               {kind: asJSON, body: `{}`},
	} {
		got, rule := look(t, Spec{Keys: places}, "/"+c.target, c.kind, c.body, c.header)
		if (got.Fault != "") != (c.fault != "") || !strings.Contains(got.Fault, c.fault) {
			t.Errorf("%s: the fault is %q, want %q", name, got.Fault, c.fault)
		}
		if c.fault == "" && (got.Key != c.key || got.By != c.by) {
			t.Errorf("%s: the key %q by %q, want %q by %q", name, got.Key, got.By, c.key, c.by)
		}
		if !rule.Key() || !rule.Keyless() || !rule.KeyInBody() || len(rule.Headers()) != 1 {
			t.Errorf("%s: the rule has lost what it looks for", name)
		}
	}
}

func TestTemplate(t *testing.T) {
	spec := Spec{
		Template: Template{Template: "o:{order}", Scope: "shop", ScopeField: "shop", Values: map[string]string{"order": "json:/order", "shop": "query:shop"}},
		Sequence: "json:/n", Attributes: map[string]string{"order": "json:/order", "gone": "json:/gone"},
	}
	got, rule := look(t, spec, "/?shop=s1", "application/json", `{"order":"7","n":"3"}`, "")
	if got.Key != "o:7" || got.By != "template" || got.Scope != "shop=s1" || got.Sequence != 3 || len(got.Attributes) != 1 || rule.Keyless() {
		t.Errorf("found %+v, keyless %v", got, rule.Keyless())
	}
	got, _ = look(t, spec, "/", "application/json", `{"order":"7","n":"03"}`, "")
	if got.Key != "" || !strings.Contains(got.Invalid, "without a sign or zeros") {
		t.Errorf("found %+v", got)
	}
	if text := rule.Missing(); !strings.Contains(text, "json:/order, query:shop") {
		t.Errorf("the caller reads %q", text)
	}
}
