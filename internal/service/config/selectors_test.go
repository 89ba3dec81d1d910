package config

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/semelhq/semel/commerce"
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
