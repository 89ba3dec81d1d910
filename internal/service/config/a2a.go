package config

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/strictyaml"
)

// A2A is an agent that is offered over A2A; see [a2a.Gateway].
type A2A struct {
	// Path of the agent on the data listener, such as /agent. No route can hide it, nor what is below it. An agent at / gets what no other door and no route gets, in place of the execution API.
	Path string `json:"path" required:"true"`
	// The agent: an http or https URL, of its JSON-RPC endpoint or the base of its REST binding. What follows path in a request follows the path of this.
	Upstream string `json:"upstream" required:"true" format:"http"`
	// Name of the operation of its messages. Defaults to default where there is an operation of that name.
	Operation string `json:"operation,omitzero"`
	Callers   `yaml:",inline"`
	// Largest request.
	MaxBody Size `json:"max_body" default:"4MiB" range:"1,1GiB"`
	// How long a duplicate of a message that is under way waits for its task.
	Wait       Duration `json:"wait" default:"30s" range:"1ms,1h"`
	Forwarding `yaml:",inline"`
}

// a2aDoors is the section a2a.
var a2aDoors = doorSection{derive: deriveA2A, validate: (*validator).a2a, mounts: func(c *Config) (list []mount) {
	for i := range c.A2A {
		door, below := fmt.Sprintf("a2a[%d]", i), c.A2A[i].Path+"/"
		list = append(list, mount{
			door: door, path: door + ".path", paths: []string{c.A2A[i].Path}, is: "that of an agent over A2A", lost: lostRoute, hint: "give it another path",
			serves: func(path string) bool { return len(below) > 2 && strings.HasPrefix(path, below) }, // at the root, nothing else
		})
	}
	return list
}, uses: func(c *Config) (operations []string) {
	for i := range c.A2A {
		operations = append(operations, c.A2A[i].Operation)
	}
	return operations
}, byDefault: routeDefault{profile: "a2a", failure: semel.ReplayFailure}}

// deriveA2A fills in what follows from other settings.
func deriveA2A(c *Config, _ *Origins, follows func(path, from string)) {
	for i := range c.A2A {
		a := &c.A2A[i]
		c.deriveAnonymous(&a.Anonymous, fmt.Sprintf("a2a[%d]", i), follows)
		if a.Operation == "" && c.operation(DefaultOperation) != nil {
			a.Operation = DefaultOperation
		}
	}
}

// a2a checks the agents that are offered over A2A.
func (v *validator) a2a() {
	var names []string
	for _, op := range v.c.Operations {
		names = append(names, op.Name)
	}
	for i := range v.c.A2A {
		a, at := &v.c.A2A[i], fmt.Sprintf("a2a[%d]", i)
		if a.Path != "/" {
			v.plainPath(at+".path", a.Path, "/agent")
		}
		v.credentials(at+".credential", a.Credential)
		v.body(at+".max_body", a.MaxBody)
		list := "the operations are " + strings.Join(names, ", ")
		switch op := v.c.operation(a.Operation); {
		case v.Faulty["operations"]:
		case a.Operation == "":
			v.bad(at+".operation", list, "operation is missing, and there is none named %s", DefaultOperation)
		case op == nil:
			v.bad(at+".operation", cmp.Or(strictyaml.DidYouMean(a.Operation, names), list), "there is no operation %q", a.Operation)
		case op.Class == semel.ReadOnly:
			v.bad(at+".operation", "name one of another class", "messages start work, and calls of class I0 run as often as they come")
		}
	}
}
