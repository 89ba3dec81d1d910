package extract

import (
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/payload"
)

// A route that doesn't compare the id of JSON-RPC takes no requests of it: a duplicate would get
// the answer to another id.
func TestRequestsWhoseIDIsIgnored(t *testing.T) {
	const one, batch = `{"jsonrpc":"2.0","id":1,"method":"pay"}`, `[{"jsonrpc":"2.0","method":"note"},{"jsonrpc":"2.0","id":1,"method":"pay"}]`
	for name, c := range map[string]struct {
		only, ignore []string
		body         string
		refused      bool
	}{
		"ignored":                  {nil, []string{"/id"}, one, true},
		"not among what counts":    {[]string{"/params"}, nil, one, true},
		"in a batch":               {nil, []string{"/1/id"}, batch, true},
		"a request out of a batch": {nil, []string{"/1"}, batch, true},
		"another of a batch":       {nil, []string{"/0/id"}, batch, false},
		"a batch by parts":         {[]string{"/params"}, nil, batch, true},
		"compared":                 {nil, []string{"/at"}, one, false},
		"among what counts":        {[]string{"/id"}, nil, one, false},
		"a notification":           {nil, []string{"/id"}, `{"jsonrpc":"2.0","method":"note"}`, false},
		"no JSON-RPC":              {nil, []string{"/id"}, `{"id":1,"method":"pay"}`, false},
		"no JSON":                  {nil, []string{"/id"}, `{"jsonrpc":"2.0","id":1`, false}, // compared whole
	} {
		got, _ := look(t, Spec{Only: c.only, Ignore: c.ignore}, "/", "application/json", c.body, "k")
		if refused := strings.Contains(got.Invalid, "mcp or a2a"); refused != c.refused || (got.Invalid != "") != c.refused {
			t.Errorf("%s: %q", name, got.Invalid)
		}
	}
}

// Where a route names two members of JSON-RPC, it is refused before any request comes.
func TestRoutesForJSONRPC(t *testing.T) {
	for name, c := range map[string]struct {
		spec    Spec
		refused bool
	}{
		"a key in the parameters": {Spec{Keys: []string{"json:/params/key"}, Ignore: []string{"/id"}}, true},
		"an attribute":            {Spec{Attributes: map[string]string{"method": "json:/method"}, Ignore: []string{"/id"}}, true},
		"a template":              {Spec{Template: Template{Template: "{order}", Values: map[string]string{"order": "json:/params/order"}}, Ignore: []string{"/id"}}, true},
		"what counts":             {Spec{Only: []string{"/method", "/params"}}, true},
		"what counts, with id":    {Spec{Only: []string{"/id", "/method", "/params"}}, false},
		"an id alone":             {Spec{Keys: []string{"header:X-Key"}, Ignore: []string{"/id"}}, false},
		"parameters alone":        {Spec{Only: []string{"/params"}}, false},
		"everything":              {Spec{Keys: []string{"json:/params/key"}, Attributes: map[string]string{"method": "json:/method"}}, false},
	} {
		c.spec.Mode, c.spec.MaxKey = payload.Auto, 16
		_, err := New(c.spec)
		if refused := err != nil && strings.Contains(err.Error(), "mcp for tools or a2a for agents"); refused != c.refused || (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
