package config

import (
	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/internal/toolcall"
)

// MCP is a server that offers its tools over MCP; see [mcp.Gateway].
type MCP struct {
	// Path of the server on the data listener, such as /mcp. No route can hide it. With a server over MCP the listener speaks HTTP/1.1 only, because Semel can tell then whether an answer arrived.
	Path string `json:"path" required:"true"`
	// The server's endpoint for Streamable HTTP: an http or https URL.
	Upstream string `json:"upstream" required:"true" format:"http"`
	// Name of the operation of its tool calls. Defaults to default where there is an operation of that name.
	Operation string `json:"operation,omitzero"`
	// Tools with settings of their own. All others are guarded by operation.
	Tools []MCPTool `json:"tools,omitempty"`
	// Let calls pass of tools that the server calls read-only.
	TrustHints bool `json:"trust_hints,omitzero"`
	// How long a call without a key and without key_fields is recognised after its answer was lost: the next call of the same caller, tool and arguments repeats it. 0s: such a call always runs.
	Echo    Duration `json:"echo" default:"2m" range:"0s,24h"`
	Callers `yaml:",inline"`
	// Origins of pages in browsers that may use the server, such as https://app.example.
	Origins []string `json:"origins,omitempty" single:"true"`
	// Largest request.
	MaxBody Size `json:"max_body" default:"4MiB" range:"1,1GiB"`
	// How long a tool may be silent.
	Timeout Duration `json:"timeout" default:"10m" range:"1ms,24h"`
	// How long a repetition waits for a call that is under way. Defaults to timeout.
	Wait Duration `json:"wait,omitzero" range:"0s,24h"`
	// Attributes to keep with the record of a call, to find it by, beside the name of the tool: json:/POINTER in the arguments, such as json:/order_id, or header:NAME.
	Attributes []string `json:"attributes,omitempty" pairs:"true"`
	Forwarding `yaml:",inline"`
}

// MCPTool tells a gateway about one tool; see [mcp.Tool].
type MCPTool struct {
	// Name of the tool.
	Name string `json:"name" required:"true" unique:"a tool has one policy"`
	// Name of the operation of its calls, which says how long they stay known and whether a failed one runs again. Defaults to that of the server.
	Operation string `json:"operation,omitzero"`
	// Calls of the tool pass unguarded: it changes nothing.
	ReadOnly bool `json:"read_only,omitzero"`
	// JSON pointers to the arguments that tell one call from another, such as /order_id: a call with the same ones is the same call, however often it comes. A call that lacks one is refused. Calls with a key don't need them.
	KeyFields []string `json:"key_fields,omitempty" single:"true"`
	// Argument that has the key of a call.
	KeyParameter string `json:"key_parameter" default:"idempotency_key"`
	// After a caller has hung up, finish lets the call end, and a repetition gets its result; cancel cancels and holds it.
	OnDisconnect mcp.Disconnect `json:"on_disconnect" default:"finish" enum:"finish,cancel"`
	// Tell clients that they may repeat calls of the tool (idempotentHint) where Semel always knows a repetition: by key_fields or a required key_parameter, for at least 90 days.
	Hint string `json:"hint" default:"on" enum:"on,off"`
	// Tools that only read, with which a model verifies a call if its outcome is unknown. Defaults to all that are read_only here or by the server's word.
	VerifyWith []string `json:"verify_with,omitempty" single:"true"`
	// Another tool, which Semel calls to find out what happened.
	Reconcile MCPReconcile `json:"reconcile,omitzero"`
}

// MCPReconcile settles calls with an unknown outcome by a tool that only reads; see [mcp.Reconcile].
type MCPReconcile struct {
	// Name of that tool, such as get_refund. Semel asks it every reconcile_every of the operation.
	Tool string `json:"tool,omitzero"`
	// Its arguments: NAME=/POINTER, to an argument of the call, such as id=/order_id.
	Arguments []string `json:"arguments,omitempty" pairs:"true"`
	// Conditions on its result. Any one of them proves that the call took effect, such as json:/structuredContent/status=refunded.
	Done []string `json:"done,omitempty"`
	// Conditions on its result. Any one of them proves that it hasn't.
	Absent []string `json:"absent,omitempty"`
	// How long a call may still be on its way, at least timeout: before that, absent proves nothing. Required with absent.
	AbsentAfter Duration `json:"absent_after,omitzero" range:"0s,365d"`
}

var mcpDoors = doorSection{derive: deriveMCP, validate: (*validator).mcp, mounts: func(c *Config) (list []mount) {
	for door, m := range items("mcp", c.MCP) {
		list = append(list, mountAt(door, m.Path, "that of a server over MCP", false))
	}
	return list
}, uses: func(c *Config) (operations []string) {
	for i := range c.MCP {
		operations = append(operations, c.MCP[i].Operation)
		for _, t := range c.MCP[i].Tools {
			operations = append(operations, t.Operation)
		}
	}
	return operations
}, byDefault: routeDefault{profile: mcp.Name, failure: semel.RetryFailure, remember: Duration(mcp.HintWindow)}}

func deriveMCP(c *Config, _ *Origins, follows func(path, from string)) {
	for path, m := range items("mcp", c.MCP) {
		c.deriveAnonymous(&m.Anonymous, path, follows)
		c.deriveOperation(&m.Operation)
		for at, t := range items(path+".tools", m.Tools) {
			if t.Operation == "" {
				t.Operation = m.Operation
				follows(at+".operation", path+".operation")
			}
		}
	}
}

func (v *validator) mcp() {
	for at, m := range items("mcp", v.c.MCP) {
		v.answers(at, m.Answers)
		if m.Path != "/" {
			v.plainPath(at+".path", m.Path, "/mcp")
		}
		v.credentials(at+".credential", m.Credential)
		v.body(at+".max_body", m.MaxBody)
		v.attributes(at, mcp.Name, m.Attributes)
		v.toolOperation(at, m.Operation)
		for at, t := range items(at+".tools", m.Tools) {
			v.toolOperation(at, t.Operation)
			for at, pointer := range items(at+".key_fields", t.KeyFields) {
				if _, err := toolcall.Field(*pointer); err != nil {
					v.bad(at, "write such as /order_id", "%q is not a JSON pointer to an argument", *pointer)
				}
			}
			if t.ReadOnly && len(t.KeyFields) > 0 {
				v.bad(at+".read_only", "keep one of the two", "calls of a tool that is read_only pass, so its key_fields tell nothing")
			}
		}
	}
}

func (v *validator) toolOperation(at, name string) {
	if op := v.operationOf(at, name); op != nil && op.Class == semel.ReadOnly {
		v.bad(at+".operation", "name one of another class, or write read_only for the tool", "tool calls may change something, and calls of class I0 run as often as they come")
	}
}
