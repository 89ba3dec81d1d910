package commerce_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/internal/keytemplate"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store/memstore"
)

// examples are the values of the map's examples, and others of their kind.
var examples = commerce.Values{
	"user_id": "user_12345", "device_id": "dev_1", "intent.created_at": "1705420800", "intent.nonce": "a7b3c9d2", "session_id": "sess_abc123",
	"operation_type": "save_cart", "sequence_number": "7", "cart_hash": "hash_xyz789", "intent_hash": "hash_def456",
	"order_id": "order_789", "amount": "2999", "currency": "USD", "cart_mandate_id": "mandate_xyz789",
	"source": "shopify", "event_id": "evt_12345abcde", "gateway": "adyen", "transaction_id": "tx_1", "event_type": "refund.processed",
	"entity": "product", "entity_id": "prod_456", "version": "v3", "upid": "prod_456", "intent.updated_at": "1705420900",
}

// valuesOf are the examples' values for the fields of a format.
func valuesOf(t *testing.T, f commerce.Format) commerce.Values {
	t.Helper()
	tmpl, err := keytemplate.New(f.Template, f.ScopeField)
	if err != nil {
		t.Fatal(err)
	}
	values := commerce.Values{}
	for _, name := range tmpl.Fields() {
		values[name] = examples[name]
	}
	return values
}

// TestFormats: there is a format for each operation type of the map, and for each further
// form in its text, made of the attributes that the map names.
func TestFormats(t *testing.T) {
	clause.Proves(t, "MAP-KEY.1", "MAP-KEY.3")
	type want struct{ key, scope string }
	wants := map[string]want{
		"session":         {"session:user_12345:dev_1:1705420800", "user=user_12345"},
		"session_nonce":   {"session:user_12345:1705420800:a7b3c9d2", "user=user_12345"},
		"session_update":  {"session_update:sess_abc123:save_cart:7", "session=sess_abc123"},
		"cart_mandate":    {"cart_mandate:sess_abc123:hash_xyz789", "session=sess_abc123"},
		"intent_mandate":  {"intent_mandate:user_12345:hash_def456", "user=user_12345"},
		"payment":         {"payment:order_789:2999:USD:1705420800", "order=order_789"},
		"order":           {"order:mandate_xyz789:user_12345", "cart=mandate_xyz789"},
		"webhook":         {"webhook:shopify:evt_12345abcde", "event=evt_12345abcde"},
		"payment_webhook": {"webhook:adyen:tx_1:refund.processed", "event=tx_1"},
		"sync":            {"sync:product:prod_456:v3", "entity=prod_456"},
		"sync_user":       {"sync:user:user_12345:v3:1705420900", "entity=user_12345"},
		"sync_product":    {"sync:product:prod_456:v3", "entity=prod_456"},
	}
	for _, f := range commerce.Formats() {
		t.Run(f.Name+" makes the key of the map's example, in its scope", func(t *testing.T) {
			key, err := f.Key(valuesOf(t, f))
			if got := (want{key.Text, key.Scope}); err != nil || got != wants[f.Name] {
				t.Errorf("%+v, %v; want %+v", got, err, wants[f.Name])
			}
		})
		delete(wants, f.Name)
	}
	for name := range wants {
		t.Errorf("there is no format %s", name)
	}
}

// TestScopeIsPartOfTheIdentity runs two calls of each format that differ in their scope
// alone, and one of them twice.
func TestScopeIsPartOfTheIdentity(t *testing.T) {
	clause.Proves(t, "MAP-KEY.2")
	for _, f := range commerce.Formats() {
		// Without its scope's field the text of the key is the same in all scopes, so only
		// the scope can keep them apart.
		bare := f
		bare.Template = "call:{what_id}"
		for _, format := range []commerce.Format{f, bare} {
			t.Run(fmt.Sprintf("another %s of %s is another call", f.Scope, format.Template), func(t *testing.T) {
				engine, err := semel.New(memstore.New(), nil)
				if err != nil {
					t.Fatal(err)
				}
				runs := 0
				op := semel.Operation{Name: "op", Class: semel.Strict}
				if err := engine.Register(op); err != nil {
					t.Fatal(err)
				}
				deliver := func(scope string) {
					t.Helper()
					var values commerce.Values
					if format == bare {
						values = commerce.Values{"what_id": "the-same"}
					} else {
						values = valuesOf(t, format)
					}
					values[format.ScopeField] = scope
					key, err := format.Key(values)
					if err != nil {
						t.Fatal(err)
					}
					call := semel.Call{Operation: "op", Principal: "shop"}
					key.Name(&call)
					if _, err := engine.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) {
						runs++
						return semel.Result{}, nil
					}); err != nil {
						t.Fatal(err)
					}
				}
				deliver("one")
				deliver("another")
				if runs != 2 {
					t.Errorf("two calls in two scopes ran %d times", runs)
				}
				if deliver("one"); runs != 2 {
					t.Error("the second delivery of a call ran")
				}
			})
		}
	}
}

func TestKeyRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		format commerce.Format
		values commerce.Values
		want   string
	}{
		{"values that are missing or that no field has", commerce.Order, commerce.Values{"user_id": "u", "cart": "c"},
			"commerce: order: no value for {cart_mandate_id}\nthere is no field {cart} in order:{cart_mandate_id}:{user_id}"},
		{"a time of now in a format of one's own", commerce.Format{Name: "pay", Template: "pay:{order_id}:{timestamp}"}, nil,
			"commerce: format pay: column 16: a time is another one in every delivery: leave it out"},
		{"a nonce that a retry makes anew", commerce.Format{Name: "login", Template: "login:{user_id}:{nonce}"}, nil,
			"commerce: format login: column 17: it is made anew for each delivery: use the id"},
		{"a scope that a retry makes anew", commerce.Format{Name: "pay", Template: "pay:{order_id}", ScopeField: "request_id"}, nil,
			"commerce: format pay: scope request_id: it names one message"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := test.format.Key(test.values); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

func TestNameKeepsTheScopeOfACall(t *testing.T) {
	key, err := commerce.Order.Key(commerce.Values{"cart_mandate_id": "m&1=2", "user_id": "u"})
	if err != nil {
		t.Fatal(err)
	}
	call := semel.Call{Scope: "account=7"}
	if key.Name(&call); call.Scope != "account=7&cart=m%261%3D2" {
		t.Error(call.Scope)
	}
	call = semel.Call{Scope: strings.Repeat("x", 100)}
	if key.Name(&call); !strings.HasPrefix(call.Scope, "sha256:") {
		t.Errorf("a scope that is too long for an identity stays as it is: %s", call.Scope)
	}
}

// TestCartHash: the hash is that of semel key derive, and doesn't depend on the order of
// lines.
func TestCartHash(t *testing.T) {
	lines := []commerce.Line{{"B", 2, "5"}, {"A", 1, "9.99"}}
	hash, err := commerce.CartHash(lines)
	want, err2 := keytemplate.CartHash(strings.NewReader(`{"variant":"A","quantity":1,"price":"9.99"}{"variant":"B","quantity":2,"price":5}`))
	if err != nil || err2 != nil || hash != want {
		t.Errorf("%s, %v; want %s, %v", hash, err, want, err2)
	}
	if _, err := commerce.CartHash(make([]commerce.Line, commerce.MaxLines+1)); err == nil {
		t.Error("a cart without bound is accepted")
	}
	if _, err := commerce.CartHash([]commerce.Line{{Quantity: 1, Price: "1"}}); err == nil {
		t.Error("a line without a variant is accepted")
	}
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.Custom(func(t *rapid.T) commerce.Line {
			return commerce.Line{Variant: rapid.SampledFrom([]string{"A", "B", "A1"}).Draw(t, "variant"), Quantity: rapid.Int64Range(1, 3).Draw(t, "quantity"), Price: rapid.SampledFrom([]string{"1", "1.5"}).Draw(t, "price")}
		})
		a := rapid.SliceOfN(line, 1, 4).Draw(t, "a")
		b := rapid.Permutation(a).Draw(t, "b")
		one, _ := commerce.CartHash(a)
		if other, _ := commerce.CartHash(b); one != other {
			t.Fatalf("%v and %v have two hashes", a, b)
		}
		b = append([]commerce.Line(nil), b...)
		b[0].Quantity += 5
		if other, _ := commerce.CartHash(b); one == other {
			t.Fatalf("%v and %v have one hash", a, b)
		}
	})
}
