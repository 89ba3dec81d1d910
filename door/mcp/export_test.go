package mcp

import (
	"net/http"

	"github.com/semelhq/semel"
)

// Refuse answers with a refusal: as an error, and as whoever calls a tool gets it.
func Refuse(w, model http.ResponseWriter, code semel.Code) {
	f, req := refusalFor(code), &request{in: &http.Request{}}
	f.write(w, req)
	c := conversation{Gateway: new(Gateway), req: req, w: model, policy: new(policy)}
	c.refuse(f)
}
