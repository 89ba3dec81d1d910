package mcp

import (
	"context"
	"net/http"
	"sync"

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

// cancelledMethod is the notification by which clients cancel, in the versions before [Modern].
const cancelledMethod = "notifications/cancelled"

// flights are the guarded calls that are under way at this gateway, of the versions before
// [Modern]: a client names the one that it cancels by its id.
type flights struct {
	mu   sync.Mutex
	list map[string]*conversation
}

// flightOf names a call of a client: ids are unique in a session.
func flightOf(in *http.Request, who *semelhttp.Caller, id []byte) string {
	plain, _ := canon.Canonicalize(id, canon.Exact) // which is valid
	return string(canon.FrameList(nil, []string{who.Tenant, who.Principal, who.Credential, in.Header.Get("Mcp-Session-Id"), string(plain)}))
}

// take lists a call until land is called.
func (f *flights) take(name string, c *conversation) (land func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.list == nil {
		f.list = map[string]*conversation{}
	}
	f.list[name] = c
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.list[name] == c {
			delete(f.list, name)
		}
	}
}

// cancelled takes a cancellation of a guarded call that is under way here. It reports false for
// any other, which passes.
func (g *Gateway) cancelled(req *request, who *semelhttp.Caller) bool {
	if req.method != cancelledMethod || req.modern {
		return false
	}
	name := flightOf(req.in, who, jsonscan.Member(req.params, "requestId"))
	g.flights.mu.Lock()
	c := g.flights.list[name]
	g.flights.mu.Unlock()
	if c == nil {
		return false
	}
	c.depart()
	return true
}

// depart says that the client doesn't wait for the answer any more.
func (c *conversation) depart() {
	c.left()
	if c.stream != nil {
		c.stream.heard(false)
	}
}

// follow has the end of the client's interest end the call, if the policy says so.
func (c *conversation) follow(cancel context.CancelFunc) (stop func() bool) {
	if c.policy.OnDisconnect != CancelCall {
		return func() bool { return true }
	}
	return context.AfterFunc(c.interest, cancel)
}
