package mcp

import (
	"github.com/semelhq/semel/internal/relay"

	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

// Refuse answers with a refusal: as an error, and as whoever calls a tool gets it.
func Refuse(w, model http.ResponseWriter, code semel.Code) {
	f, req := refusalFor(code), &request{in: &http.Request{}}
	f.write(w, req)
	c := conversation{Gateway: new(Gateway), req: req, Follower: relay.Follower{W: model}, policy: new(policy)}
	c.refuse(f)
}

// Recognise reads a request, and returns what identifies the call that it makes, if it makes one.
func Recognise(body []byte, header http.Header) (call semel.Call, guarded bool) {
	req := &request{in: &http.Request{Header: header}, body: body}
	if req.read() != nil || req.method != callMethod {
		return call, false
	}
	c := conversation{Gateway: &Gateway{plain: new(policy)}, req: req, who: semelhttp.Caller{Principal: "tester"}}
	err := c.recognise()
	return c.call, err == nil
}
