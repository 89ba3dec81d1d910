package terms

import (
	"encoding/hex"
	"slices"
	"testing"

	"github.com/semelhq/semel/store"
)

// TestForm has the bytes of a term, which stores keep. Whoever changes them changes Form.
func TestForm(t *testing.T) {
	term := of("order", "9911")
	if got := hex.EncodeToString(term[:]); Form != 1 || got != "510ce2a8320b8d5c1722481c6ab71a7a" {
		t.Errorf("form %d of order=9911 is %s", Form, got)
	}
}

func TestChanged(t *testing.T) {
	was := store.Attributes{"order": "1", "cart": "2", store.AttributeTrace: "a"}
	is := store.Attributes{"order": "1", "cart": "3", "user": "u", store.AttributeTrace: "b"}
	gone, added := Changed(was, is)
	if !slices.Equal(gone, []Term{of("cart", "2")}) || len(added) != 2 || !slices.Contains(added, of("cart", "3")) || !slices.Contains(added, of("user", "u")) {
		t.Errorf("gone are %x, added %x", gone, added)
	}
	if gone, added := Changed(was, was); gone != nil || added != nil {
		t.Errorf("nothing changed, and gone are %x, added %x", gone, added)
	}
	if gone, added := Changed(nil, nil); gone != nil || added != nil {
		t.Errorf("there is nothing, and gone are %x, added %x", gone, added)
	}
}

func TestFor(t *testing.T) {
	order, cart := store.Query{Attributes: store.Attributes{"order": "1"}}, store.Query{Attributes: store.Attributes{"cart": "2"}, Held: true}
	key, trace := store.Query{Key: "k"}, store.Query{Attributes: store.Attributes{store.AttributeTrace: "a"}}
	for name, c := range map[string]struct {
		q    store.Query
		want []Term
	}{
		"an attribute":                     {order, []Term{of("order", "1")}},
		"a trace":                          {trace, nil},
		"a beginning":                      {store.Query{AttributePrefixes: store.Attributes{"order": "1"}}, nil},
		"either":                           {store.Query{Any: [][]store.Query{{order, cart, order}}}, []Term{of("order", "1"), of("cart", "2")}},
		"either, or another key":           {store.Query{Any: [][]store.Query{{order, key}}}, nil},
		"either, in the second list":       {store.Query{Any: [][]store.Query{{key}, {order}}}, []Term{of("order", "1")}},
		"either of an empty list":          {store.Query{Any: [][]store.Query{{}}}, nil},
		"either, nested":                   {store.Query{Any: [][]store.Query{{{Any: [][]store.Query{{cart}}}}}}, []Term{of("cart", "2")}},
		"none of":                          {store.Query{Not: []store.Query{order}}, nil},
		"an attribute, and either of keys": {store.Query{Attributes: cart.Attributes, Any: [][]store.Query{{key}}}, []Term{of("cart", "2")}},
	} {
		got, ok := For(&c.q)
		if ok != (c.want != nil) || len(got) != len(c.want) {
			t.Errorf("%s: %x, %t", name, got, ok)
		}
		for _, term := range c.want {
			if !slices.Contains(got, term) {
				t.Errorf("%s: %x is not among %x", name, term, got)
			}
		}
	}
}
