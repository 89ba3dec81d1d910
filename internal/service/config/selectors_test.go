package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/strictyaml"
)

func TestSelectorsOfRoutes(t *testing.T) {
	const text = `
operations:
  - name: pay
    attributes: {order: json:/order, customer: header:X-Customer}
routes:
  - match: POST /pay
    upstream: http://127.0.0.1:9000
    operation: pay
    key_from: [header:Idempotency-Key, json:/id]
    fingerprint: {only: [/amount], ignore: /trace}
    attributes: {order: json:/order_id, receipt: answer:/id}
  - match: POST /orders
    upstream: http://127.0.0.1:9000
    operation: pay
    key_template:
      format: order
      values: {cart_mandate_id: json:/mandate, user_id: json:/user}
`
	c, _, err := Load(Source{Path: "f", Data: []byte(text), Env: environment})
	if err != nil {
		t.Fatal(err)
	}
	rt := c.Guarded(c.Routes[0])
	if want := map[string]string{"order": "json:/order_id", "customer": "header:X-Customer", "receipt": "answer:/id"}; !maps.Equal(rt.Attributes, want) {
		t.Errorf("attributes %v", rt.Attributes)
	}
	if !slices.Equal(rt.KeyFrom, []string{"header:Idempotency-Key", "json:/id"}) || !slices.Equal(rt.FingerprintOnly, []string{"/amount"}) || !slices.Equal(rt.FingerprintIgnore, []string{"/trace"}) {
		t.Errorf("%+v", rt)
	}
	kt := c.Guarded(c.Routes[1]).KeyTemplate
	if kt.Template != commerce.Order.Template || kt.Scope != "cart" || kt.ScopeField != "cart_mandate_id" || kt.Values["user_id"] != "json:/user" {
		t.Errorf("%+v", kt)
	}
}

// TestFormatsOfKeyTemplates: a route knows the formats of commerce, no more and no fewer.
func TestFormatsOfKeyTemplates(t *testing.T) {
	var want []string
	for _, f := range commerce.Formats() {
		want = append(want, f.Name)
	}
	for _, f := range strictyaml.Fields(reflect.TypeFor[KeyTemplate]()) {
		if f.Name == "format" && !slices.Equal(f.Enum, want) {
			t.Errorf("key_template.format has %v, want %v", f.Enum, want)
		}
	}
}

func TestSequenceOfRoutes(t *testing.T) {
	c, _, err := Load(Source{Path: "f", Env: environment, Data: []byte(`
operations:
  - {name: update, sequenced: true}
routes:
  - {match: POST /update, upstream: "http://127.0.0.1:9000", operation: update, sequence: json:/sequence}
`)})
	if err != nil {
		t.Fatal(err)
	}
	if rt := c.Guarded(c.Routes[0]); rt.Sequence != "json:/sequence" {
		t.Errorf("%+v", rt)
	}
}

// TestMembersThatDifferInEachDelivery are warned of where a key is made from a body.
func TestMembersThatDifferInEachDelivery(t *testing.T) {
	clause.Proves(t, "MAP-CART.5")
	const head = "operations: [{name: carts}]\nroutes:\n  - {match: POST /carts, upstream: 'http://127.0.0.1:9', operation: carts, key_template: {template: 'cart:{cart_hash}:{user_id}', values: {cart_hash: cart:/lines, user_id: "
	for name, c := range map[string]struct{ rest, want string }{
		"a body of which nothing is known": {"json:/user}}}", "routes[0].key_template: what the key leaves out of a body is still compared"},
		"an attribute that is a time":      {"json:/user}}, attributes: {asked: json:/meta/requested_at, shop: json:/shop}}", "add /meta/requested_at to fingerprint.ignore"},
		"a part that is ignored":           {"json:/user}}, attributes: {asked: json:/meta/requested_at}, fingerprint: {ignore: [/meta]}}", ""},
		"a time that is ignored":           {"json:/user}}, attributes: {asked: json:/meta/requested_at}, fingerprint: {ignore: [/meta/requested_at]}}", ""},
		"parts that are compared":          {"json:/user}}, fingerprint: {only: [/lines]}}", ""},
		"a user from a header":             {"header:X-User}}}", "routes[0].key_template: what"},
	} {
		cfg, _ := mustLoad(t, Source{Path: "f", Data: []byte(head + c.rest), Env: environment})
		got := cfg.Warnings()
		if len(got) != min(len(c.want), 1) || c.want != "" && !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	const fromHeader = "operations: [{name: a}]\nroutes: [{match: POST /a, upstream: 'http://127.0.0.1:9', operation: a, key_template: {template: 'a:{user_id}', values: {user_id: header:X-User}}}]"
	cfg, _ := mustLoad(t, Source{Path: "f", Data: []byte(fromHeader), Env: environment})
	if got := cfg.Warnings(); len(got) != 0 {
		t.Errorf("a key from headers alone: %q", got)
	}
}
