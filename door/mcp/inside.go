package mcp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/relay"
	"github.com/semelhq/semel/internal/toolcall"
)

// Inside guards tool calls in the process of their server, for adapters such as
// contrib/semelmcp. A call that has neither a key nor [Tool].Fields runs each time, because a
// server can't tell whether its answers arrive. It may be used concurrently.
type Inside struct{ *Gateway }

// NewInside makes a guard on an engine and registers its operations. Of opts it uses Operation,
// Tools, TrustHints, Wait and Attributes.
func NewInside(engine *semel.Engine, runner *door.Runner, opts GatewayOptions) (*Inside, error) {
	if engine == nil || runner == nil {
		return nil, errors.New("mcp: a guard needs an engine and a runner")
	}
	g, err := newGateway(engine, runner, opts)
	return &Inside{g}, err
}

// Reply answers a call, in JSON: a result of the tool, or an error of JSON-RPC.
type Reply struct {
	Result, Error []byte
	// Err is the error that the tool itself returned, with its mark, such as that of
	// [semel.Unknown].
	Err error
}

// inside is one delivery of a call to its server.
type inside struct {
	conversation
	run   func(ctx context.Context, a *semel.Attempt, params []byte) Reply
	reply Reply
}

// Call answers a tool call by its parameters in JSON. If this delivery is the one that executes, it
// calls run with the parameters for the tool, which lack what only confirms the call, and with a
// context that goes on when the client leaves. The attempt is nil for a tool that only reads.
func (g *Inside) Call(ctx context.Context, who semelhttp.Caller, header http.Header, params []byte, run func(ctx context.Context, a *semel.Attempt, params []byte) Reply) Reply {
	c := inside{run: run}
	door.Tell(ctx, g.engine.Internal(), Name, header, func(ctx context.Context) (semel.Delivered, bool) {
		in := (&http.Request{Header: header}).WithContext(ctx)
		req := &request{in: in, method: callMethod, params: params, body: slices.Concat([]byte(`{"params":`), params, []byte("}")), modern: true}
		c.conversation = conversation{Gateway: g.Gateway, req: req, who: who, Follower: relay.Follower{R: in, Wait: g.opts.Wait, Mark: markOf}}
		c.Own = c.own
		e := c.serve(ctx)
		e.ID.Operation = cmp.Or(e.ID.Operation, g.opts.Operation.Name)
		return e, true
	})
	return c.reply
}

// serve answers the call, and returns the event about that.
func (c *inside) serve(ctx context.Context) (e semel.Delivered) {
	err := c.admit(ctx)
	if err == nil && c.passes() {
		c.reply = c.run(ctx, nil, c.req.params)
		return e
	}
	var ans semel.Answer
	if err == nil {
		ans, err = c.deliver(ctx, c.call, c)
		e = door.EventOf(&ans)
	}
	switch result, f := c.found(&ans, err); {
	case f != nil && f.protocol():
		e.Code, c.reply = f.code, Reply{Error: f.text()}
	case f != nil:
		e.Code, c.reply = f.code, Reply{Result: c.explained(f)}
	case ans.Decision != semel.Execute:
		o := recall(result.Data)
		c.reply = Reply{Result: toolcall.Added(o.Result, "_meta", markReplayed), Error: o.Error}
	default:
		c.result = c.reply.Result
		c.continues(context.WithoutCancel(ctx))
		if c.loose {
			c.reply.Result = toolcall.Added(c.reply.Result, "_meta", markRepetition)
		}
	}
	return e
}

// Run does the work, and says how the attempt ends by what the tool returned.
func (c *inside) Run(x door.Run) semel.Ending {
	ctx, cancel := x.Context()
	defer cancel()
	c.reply = c.run(ctx, x.Attempt, jsonscan.Member(c.req.body, "params"))
	o := outcome{Status: http.StatusOK, Result: c.reply.Result, Error: c.reply.Error}
	found := judge.Finding{Verdict: judge.Completed}
	switch {
	case c.reply.Err != nil:
		switch end := x.Ending(c.reply.Err); end.Disposition {
		case semel.DispositionCompleted, semel.DispositionRejected, semel.DispositionFailed:
			end.Result = o.recorded()
			return end
		case semel.DispositionAborted:
			return end
		default:
			held := c.ending(judge.Finding{Verdict: judge.Unknown}, o)
			held.Failure, held.Unmarked = end.Failure, end.Unmarked
			return held
		}
	case o.Error != nil:
		code, _ := strconv.Atoi(string(jsonscan.Member(o.Error, "code"))) // zero: nobody knows it
		found = c.policy.rules.MCP(code, nil)
	case toolcall.Failed(o.Result):
		found = judge.Finding{Verdict: judge.Failed, Code: "isError"}
	}
	return c.ending(found, o)
}

// Tools takes note of a list of tools, the result of tools/list in JSON, and returns it with the
// hints that the guard makes true; see [HintWindow].
func (g *Inside) Tools(list []byte) []byte {
	answer := g.described(slices.Concat([]byte(`{"result":`), list, []byte("}")))
	return jsonscan.Member(answer, "result")
}
