package config

import "github.com/semelhq/semel"

// A2A is an agent that is offered over A2A; see [a2a.Gateway].
type A2A struct {
	// Path of the agent on the data listener, such as /agent. No route can hide it, or any path below it. An agent at / gets what no other door and no route gets, in place of the execution API.
	Path string `json:"path" required:"true"`
	// The agent: an http or https URL, of its JSON-RPC endpoint or the base of its REST binding. What follows path in a request follows the path of this.
	Upstream string `json:"upstream" required:"true" format:"http"`
	// Name of the operation of its messages. Defaults to default where there is an operation of that name.
	Operation string `json:"operation,omitzero"`
	Callers   `yaml:",inline"`
	// Largest request.
	MaxBody Size `json:"max_body" default:"4MiB" range:"1,1GiB"`
	// How long a duplicate of a message that is under way waits for its task.
	Wait Duration `json:"wait" default:"30s" range:"1ms,1h"`
	// Attributes to keep with the record of a message, to find it by: json:/POINTER in the message, such as json:/metadata/order_id, or header:NAME.
	Attributes []string `json:"attributes,omitempty" pairs:"true"`
	Forwarding `yaml:",inline"`
}

var a2aDoors = doorSection{derive: deriveA2A, validate: (*validator).a2a, mounts: func(c *Config) (list []mount) {
	for door, a := range items("a2a", c.A2A) {
		list = append(list, mountAt(door, a.Path, "that of an agent over A2A", true))
	}
	return list
}, uses: func(c *Config) (operations []string) {
	for i := range c.A2A {
		operations = append(operations, c.A2A[i].Operation)
	}
	return operations
}, byDefault: routeDefault{profile: "a2a", failure: semel.ReplayFailure}}

func deriveA2A(c *Config, _ *Origins, follows func(path, from string)) {
	for path, a := range items("a2a", c.A2A) {
		c.deriveAnonymous(&a.Anonymous, path, follows)
		c.deriveOperation(&a.Operation)
	}
}

func (v *validator) a2a() {
	for at, a := range items("a2a", v.c.A2A) {
		v.answers(at, a.Answers)
		if a.Path != "/" {
			v.plainPath(at+".path", a.Path, "/agent")
		}
		v.credentials(at+".credential", a.Credential)
		v.body(at+".max_body", a.MaxBody)
		v.attributes(at, "a2a", a.Attributes)
		if op := v.operationOf(at, a.Operation); op != nil && op.Class == semel.ReadOnly {
			v.bad(at+".operation", "name one of another class", "messages start work, and calls of class I0 run as often as they come")
		}
	}
}
