package toolcall

import (
	"slices"

	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/paramheader"
)

// Description is what a server says of a tool in tools/list.
type Description struct {
	Name     string
	ReadOnly bool                   // it hints that the tool changes nothing
	Output   bool                   // the tool has an output schema
	Required []string               // the arguments that every call has
	Mirrored []paramheader.Mirrored // the arguments that headers repeat
}

// Describe reads the description of a tool. What isn't there, or isn't of its form, counts as not said.
func Describe(tool []byte) (d Description) {
	d.Name, _ = jsonscan.Text(jsonscan.Member(tool, "name"))
	schema := jsonscan.Member(tool, "inputSchema")
	for argument := range jsonscan.Items(jsonscan.Member(schema, "required")) {
		if name, ok := jsonscan.Text(argument); ok {
			d.Required = append(d.Required, name)
		}
	}
	d.ReadOnly = string(jsonscan.At(tool, "annotations", "readOnlyHint")) == "true"
	d.Output = jsonscan.Member(tool, "outputSchema") != nil
	d.Mirrored = paramheader.In(schema)
	return d
}

// Hinted returns the description of a tool with the hint that a repeated call does no harm, and the
// rest as it is spelled.
func Hinted(tool []byte) []byte {
	if hint := jsonscan.At(tool, "annotations", "idempotentHint"); hint != nil {
		at := jsonscan.Offset(tool, hint)
		return slices.Concat(tool[:at], []byte("true"), tool[at+len(hint):])
	}
	return Added(tool, "annotations", `"idempotentHint":true`)
}

// Added returns an object with a member in the object that it has under a name, or may have. The rest
// is as it is spelled.
func Added(object []byte, name, member string) []byte {
	inner := jsonscan.Member(object, name)
	switch {
	case jsonrpc.First(object) != '{', inner != nil && jsonrpc.First(inner) != '{': // null, or nothing that has members
		return object
	case inner != nil:
		return jsonscan.Insert(object, jsonscan.Offset(object, inner), member)
	}
	return jsonscan.Insert(object, 0, `"`+name+`":{`+member+`}`)
}

// Failed reports whether a result says that the tool failed.
func Failed(result []byte) bool { return string(jsonscan.Member(result, "isError")) == "true" }
