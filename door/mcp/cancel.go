package mcp

import (
	"net/http"

	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
)

// Disconnect says what becomes of a call if its client leaves or cancels it.
type Disconnect string

// The rules. The protocol lets a server stop such a call, and nobody can know then how far it was.
const (
	// FinishCall lets the call go on, so that whoever asks again gets its result. The default.
	FinishCall Disconnect = "finish"
	// CancelCall cancels it. The call is held then, unless it had ended.
	CancelCall Disconnect = "cancel"
)

// cancelledMethod is the notification that cancels a call in the versions before [Modern].
const cancelledMethod = "notifications/cancelled"

// flightOf names a guarded call that is under way at this gateway: ids are unique in a session.
func flightOf(in *http.Request, who *semelhttp.Caller, id []byte) string {
	plain, _ := canon.Canonicalize(id, canon.Exact) // an id of nothing has no flight
	return string(canon.FrameList(nil, []string{who.Tenant, who.Principal, who.Credential, in.Header.Get("Mcp-Session-Id"), string(plain)}))
}

// cancelled takes a cancellation of a guarded call that is under way here. It reports false for
// any other, which passes.
func (g *Gateway) cancelled(req *request, who *semelhttp.Caller) bool {
	found, ok := g.flights.Load(flightOf(req.in, who, jsonscan.Member(req.params, "requestId")))
	if !ok {
		return false
	}
	c := found.(*conversation)
	c.left()
	if c.stream != nil {
		c.stream.heard(false)
	}
	return true
}
