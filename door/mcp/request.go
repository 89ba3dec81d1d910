package mcp

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/paramheader"
)

// Modern is the first version in which each request says everything about itself; before it, a
// handshake and sessions did.
const Modern = "2026-07-28"

// versions lists the versions that the gateway speaks, the newest first.
var versions = []string{Modern, "2025-11-25", "2025-06-18"}

// The methods that the gateway doesn't only pass on.
const (
	callMethod       = "tools/call"
	listMethod       = "tools/list"
	initializeMethod = "initialize"
)

// The headers and members that say the same twice.
const (
	versionHeader = "Mcp-Protocol-Version"
	methodHeader  = "Mcp-Method"
	nameHeader    = "Mcp-Name"

	metaPrefix         = "io.modelcontextprotocol/"
	versionMember      = metaPrefix + "protocolVersion"
	capabilitiesMember = metaPrefix + "clientCapabilities"
)

// The codes of errors that MCP adds to JSON-RPC.
const (
	headerMismatch     = -32020
	missingCapability  = -32021
	unsupportedVersion = -32022
)

// fault is why a request isn't one, for its sender.
type fault struct {
	status, rpc int
	message     string
	data        map[string]any
}

// Error is the message.
func (f *fault) Error() string { return f.message }

func mismatch(message string) error {
	return &fault{status: http.StatusBadRequest, rpc: headerMismatch, message: message + " Nothing was sent on."}
}

func wrongVersion(said string) error {
	return &fault{
		status: http.StatusBadRequest, rpc: unsupportedVersion, message: "Unsupported protocol version",
		data: map[string]any{"supported": versions, "requested": said},
	}
}

// request is a POST to a server.
type request struct {
	in     *http.Request // as it is sent on, but for its body
	body   []byte
	id     []byte // of JSON-RPC; nil: there is none that can be told
	method string // empty: it answers the server
	params []byte
	modern bool
}

// read reads the body, and compares the headers with it. The error is for the caller.
func (r *request) read() error {
	m, err := jsonrpc.ReadMessage(r.body)
	r.id, r.method, r.params = m.ID, m.Method, m.Params
	if err == nil && m.Params != nil {
		var large []byte // of a tool call, which checks them itself
		if m.Method == callMethod {
			large = jsonscan.Member(m.Params, "arguments")
		}
		if err := jsonscan.CheckBut(m.Params, canon.Exact, large); err != nil {
			return jsonrpc.NotJSON(err)
		}
	}
	switch {
	case err != nil:
		return err
	case bytes.ContainsAny(m.ID, ".eE") && m.ID[0] != '"':
		r.id = nil
		return &jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: "The id is neither a string nor an integer."}
	case m.Method != callMethod && strings.EqualFold(m.Method, callMethod):
		return &fault{status: http.StatusNotFound, rpc: jsonrpc.MethodNotFound, message: "There is no method of this spelling. Nothing was sent on."}
	case m.Method == callMethod && m.ID == nil:
		return &jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: "A tool call without an id has nobody to answer to."}
	}
	if err := r.version(); err != nil {
		return err
	}
	switch {
	case r.modern && m.Answers:
		return &jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: "A client sends no responses in this version."}
	case m.Method == callMethod:
		return r.compare()
	}
	return nil
}

// version finds out which version a message is in.
func (r *request) version() error {
	said := r.in.Header[versionHeader]
	if r.method == initializeMethod && len(said) == 0 {
		if asked, _ := jsonscan.Text(jsonscan.Member(r.params, "protocolVersion")); asked < versions[len(versions)-1] {
			return wrongVersion(asked)
		}
		return nil // a server may answer with another, and the header of what follows says which
	}
	meta := jsonscan.At(r.params, "_meta", versionMember)
	inBody, text := jsonscan.Text(meta)
	switch {
	case len(said) != 1:
		return mismatch("Each request has one header MCP-Protocol-Version.")
	case !slices.Contains(versions, said[0]):
		return wrongVersion(said[0])
	case meta != nil && (!text || inBody != said[0]):
		return mismatch("The header MCP-Protocol-Version and " + versionMember + " in the body differ.")
	}
	if r.modern = said[0] >= Modern; r.modern && meta == nil && r.method == callMethod {
		return &fault{status: http.StatusBadRequest, rpc: jsonrpc.InvalidParams, message: "The parameters have no _meta with " + versionMember + ". Nothing was sent on."}
	}
	return nil
}

// compare compares the headers of a tool call with its body: who routes by headers, and who
// executes by the body, must not be two calls. The versions before [Modern] have no such
// headers, but one that contradicts the body is refused there, too.
func (r *request) compare() error {
	name, _ := jsonscan.Text(jsonscan.Member(r.params, "name"))
	for _, h := range []struct{ name, want string }{{methodHeader, r.method}, {nameHeader, name}} {
		values := r.in.Header[h.name]
		if len(values) == 0 && !r.modern {
			continue
		}
		if len(values) != 1 {
			return mismatch("Each tool call has one header " + h.name + ".")
		}
		said, ok := values[0], true
		if h.name == nameHeader {
			said, ok = paramheader.Decode(said)
		}
		if !ok || said != h.want {
			return mismatch("The header " + h.name + " and the body differ.")
		}
	}
	if r.modern && jsonrpc.First(r.capable()) != '{' {
		return &fault{status: http.StatusBadRequest, rpc: jsonrpc.InvalidParams, message: "The parameters have no _meta with " + capabilitiesMember + ". Nothing was sent on."}
	}
	return nil
}

// capable is what a client can do, as it declares that with each request since [Modern].
func (r *request) capable() []byte {
	return jsonscan.At(r.params, "_meta", capabilitiesMember)
}
