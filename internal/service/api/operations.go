package api

import "github.com/semelhq/semel"

type operationList struct {
	Operations []operation `json:"operations" nullable:"false"`
}

type operationInput struct {
	Operation string `path:"operation" maxLength:"256"`
}

func (b *builder) operations() {
	route(b, about("listOperations", "operations", "GET /v1/operations", "List the declared operations",
		""), NoRole, nil, func(x *exchange, _ *struct{}) (*reply[operationList], error) {
		out := &reply[operationList]{operationList{Operations: []operation{}}}
		for _, op := range x.api.engine.Internal().Operations() {
			out.Body.Operations = append(out.Body.Operations, x.api.operationOf(op))
		}
		return out, nil
	})
	route(b, about("getOperation", "operations", "GET /v1/operations/{operation}", "Read the policy of an operation",
		""), NoRole, []semel.Code{semel.CodeUnknownOperation}, func(x *exchange, in *operationInput) (*reply[operation], error) {
		op, ok := x.api.engine.Internal().Operation(in.Operation)
		if !ok {
			return nil, x.api.newProblem(semel.CodeUnknownOperation, "")
		}
		return &reply[operation]{x.api.operationOf(op)}, nil
	})
}
