package extract

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/semelhq/semel/store"
)

// TestNamesOfItems: what an item has under a name is found, and what it lacks is no error.
func TestNamesOfItems(t *testing.T) {
	usual := []Attribute{
		{Name: "order", From: "json:/id", Kinds: []string{"orders/*", "order"}},
		{Name: "order", From: "json:/order_id"},
		{Name: "shop", From: "header:X-Shop"},
		{Name: "message", From: "form:MessageSid"},
	}
	for name, c := range map[string]struct {
		configured map[string]string
		kind, item string
		want       store.Attributes
	}{
		"of a kind":             {nil, "orders/paid", `{"id":820982911946154508,"order_id":"7"}`, store.Attributes{"order": "820982911946154508", "shop": "acme"}},
		"of the kind by name":   {nil, "order", `{"id":"9"}`, store.Attributes{"order": "9", "shop": "acme"}},
		"of another kind":       {nil, "refunds/create", `{"id":1,"order_id":7}`, store.Attributes{"order": "7", "shop": "acme"}},
		"the first is missing":  {nil, "orders/edited", `{"id":null,"order_id":7}`, store.Attributes{"order": "7", "shop": "acme"}},
		"nothing of it":         {nil, "orders/paid", `{"id":{},"other":1}`, store.Attributes{"shop": "acme"}},
		"too long":              {nil, "order", `{"id":"` + strings.Repeat("x", 2000) + `"}`, store.Attributes{"shop": "acme"}},
		"a name twice":          {nil, "order", `{"id":"9","id":"8"}`, store.Attributes{"shop": "acme"}},
		"not JSON":              {nil, "order", `id=9`, store.Attributes{"shop": "acme"}},
		"a form":                {nil, "", `MessageSid=SM1&id=9`, store.Attributes{"message": "SM1", "shop": "acme"}},
		"configured":            {map[string]string{"order": "json:/name"}, "orders/paid", `{"id":9,"name":"#1001"}`, store.Attributes{"order": "#1001", "shop": "acme"}},
		"configured, not there": {map[string]string{"order": "json:/name"}, "orders/paid", `{"id":9}`, store.Attributes{"shop": "acme"}},
		"configured and usual":  {map[string]string{"buyer": "json:/buyer"}, "", `{"buyer":"b","order_id":"o"}`, store.Attributes{"buyer": "b", "order": "o", "shop": "acme"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := NewNames("webhook", c.configured, usual...)
			if err != nil {
				t.Fatal(err)
			}
			c.want[store.AttributeEventID] = "evt"
			own := store.Attributes{store.AttributeEventID: "evt", store.AttributePayment: ""}
			if got := n.Of(own, c.kind, http.Header{"X-Shop": {"acme"}}, []byte(c.item)); !maps.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
	var none *Names
	if got := none.Of(store.Attributes{"type": "Follow", "actor": ""}, "", nil, []byte(`{}`)); !maps.Equal(got, store.Attributes{"type": "Follow"}) {
		t.Errorf("without attributes: %v", got)
	}
}

// TestNamesThatADoorRefuses: no attribute takes the place of one that the door needs, and with
// its own there are never more than a record can have.
func TestNamesThatADoorRefuses(t *testing.T) {
	many := map[string]string{}
	for name := range strings.SplitSeq("a b c d e f g h i", " ") {
		many[name] = "json:/" + name
	}
	for name, c := range map[string]struct {
		door, attribute, from, want string
	}{
		"the id of an event":       {"webhook", "event_id", "json:/id", "another meaning"},
		"what tells events apart":  {"webhook", "apart", "json:/id", "another meaning"},
		"the hash of arguments":    {"forrst", "arguments_hash", "json:/id", "another meaning"},
		"the id of a command":      {"ids", "command_id", "json:/id", "can't be the name"},
		"an actor":                 {"activitypub", "actor", "json:/actor", "another meaning"},
		"no name":                  {"a2a", "a b", "json:/id", "can't be the name"},
		"the answer":               {"a2a", "receipt", "answer:/id", "begins with one of header:, json:"},
		"a header of a command":    {"ids", "order", "header:X-Order", "begins with one of json:"},
		"the query of a webhook":   {"webhook", "order", "query:order", "begins with one of header:, json:, form:"},
		"the whole item":           {"a2a", "all", "json:", "the whole body"},
		"nothing of a known place": {"a2a", "order", "order_id", "doesn't say where"},
	} {
		if _, err := NewNames(c.door, map[string]string{c.attribute: c.from}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := NewNames("ids", many); err == nil || !strings.Contains(err.Error(), "more than 8") {
		t.Errorf("%d attributes: %v", len(many), err)
	}
	delete(many, "a")
	if _, err := NewNames("ids", many); err != nil {
		t.Errorf("%d attributes: %v", len(many), err)
	}
}
