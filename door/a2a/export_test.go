package a2a

import (
	"net/http"

	"github.com/semelhq/semel"
)

// Refusal is what the sender of a message to a wrapped agent is told.
func Refusal(code semel.Code) error { return sdkError(refusalFor(code)) }

// Refuse answers with a refusal, over JSON-RPC or REST.
func Refuse(w http.ResponseWriter, code semel.Code, rpc bool) {
	f := refusalFor(code)
	f.write(w, &request{rpc: rpc})
}

// Read reads the body of a request, over JSON-RPC or REST, and returns what identifies the
// message that it sends, if it sends one.
func Read(body []byte, rpc bool) (id string, fingerprint semel.Fingerprint, guarded bool) {
	r := &request{body: body, rpc: rpc}
	guarded, err := r.read()
	return r.msg.id, r.msg.fingerprint, guarded && err == nil
}
