package mcp

import (
	"context"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/relay"
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

// FollowTask follows a task of a call until that ends or the gateway gives up.
func (g *Gateway) FollowTask(ctx context.Context, in *http.Request, ttl time.Duration) (semel.Answer, error) {
	c := conversation{Gateway: g, req: &request{in: in, modern: true}, policy: g.plain}
	c.call = semel.Call{Operation: g.plain.op.Name, Key: "k-1", Door: Name}
	call, f := c.following(ctx, &semel.Record{Origin: 1}, task{id: "task-1", ttl: ttl})
	return g.runner.Do(ctx, call, door.Work{Handler: f})
}
