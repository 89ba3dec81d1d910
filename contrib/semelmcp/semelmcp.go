// Package semelmcp runs each tool call of a server once, for servers that are built with the
// official SDK for MCP. It works with every transport of the SDK, stdio included.
//
//	guard, err := semelmcp.New(engine, semelmcp.Options{
//		Operation: semel.Operation{Name: "tools"},
//		Tools:     map[string]mcp.Tool{"refund": {Fields: []string{"/order_id", "/amount"}}},
//	})
//	server.AddReceivingMiddleware(guard.Middleware) // the last, so that it is around the others
//
// A call's key tells it from others, or else the arguments that its tool declares. A call without
// either runs each time, and its result says so: only a gateway can tell whether an answer arrived; see package
// door/mcp.
package semelmcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp"
)

// Options configures [New]. Only Operation is required.
type Options struct {
	// Operation has the policy of tool calls, and is registered. Its OnFailure defaults to
	// [semel.RetryFailure] unless it is Financial.
	Operation semel.Operation
	// Tools have what a tool's name alone doesn't say, see [mcp.Tool]. OnDisconnect isn't used: a
	// call goes on when its client leaves.
	Tools map[string]mcp.Tool
	// TrustHints lets the calls of tools pass that the server itself calls read-only.
	TrustHints bool
	// Identify tells who sends a call. Defaults to the user of the token that the SDK has verified,
	// or else the credential in the request's header, or, without HTTP, one caller for all.
	Identify func(ctx context.Context, r *sdk.CallToolRequest) (semelhttp.Caller, error)
	// Runner runs the calls. Defaults to the guard's own; give yours to close it after your server,
	// see [door.Runner].
	Runner *door.Runner
	// Wait is how long a duplicate waits for a call that is under way. Defaults to 10 minutes.
	Wait time.Duration
	// Attributes go into a call's record, as in [mcp.GatewayOptions].
	Attributes map[string]string
}

// Guard runs each tool call once. It may be used concurrently, by any number of servers.
type Guard struct {
	inside *mcp.Inside
	opts   Options
}

// New makes a guard on an engine.
func New(engine *semel.Engine, opts Options) (*Guard, error) {
	if engine == nil {
		return nil, errors.New("semelmcp: a guard needs an engine")
	}
	if opts.Runner == nil {
		opts.Runner = door.NewRunner(engine)
	}
	inside, err := mcp.NewInside(engine, opts.Runner, mcp.GatewayOptions{
		Operation: opts.Operation, Tools: opts.Tools, TrustHints: opts.TrustHints, Wait: opts.Wait, Attributes: opts.Attributes,
	})
	if err != nil {
		return nil, err
	}
	if opts.Identify == nil {
		callers, err := semelhttp.New(engine, nil)
		if err != nil {
			return nil, err
		}
		opts.Identify = func(ctx context.Context, r *sdk.CallToolRequest) (semelhttp.Caller, error) {
			return caller(ctx, r, callers)
		}
	}
	return &Guard{inside, opts}, nil
}

// Attempt returns the attempt under which a tool runs, for [semel.Effect]; false for a call that
// isn't guarded.
func Attempt(ctx context.Context) (*semel.Attempt, bool) {
	a, _ := ctx.Value(attemptKey{}).(*semel.Attempt)
	return a, a != nil
}

type attemptKey struct{}

const callMethod = "tools/call"

// Middleware is for AddReceivingMiddleware of a server. It guards tools/call, and has tools/list say
// idempotentHint where the guard makes it true. A tool that gets no answer from another system returns
// [semel.Unknown]: its call is held then, and nobody runs it again before somebody has settled it.
func (g *Guard) Middleware(next sdk.MethodHandler) sdk.MethodHandler {
	var first sync.Once
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		switch r := req.(type) {
		case *sdk.ListToolsRequest:
			res, err := next(ctx, method, req)
			if list, ok := res.(*sdk.ListToolsResult); ok && err == nil {
				return g.described(list), nil
			}
			return res, err
		case *sdk.CallToolRequest:
			first.Do(func() { // its client may know the tools from another process
				res, err := next(ctx, "tools/list", &sdk.ListToolsRequest{Session: r.Session, Params: &sdk.ListToolsParams{}, Extra: r.Extra})
				if list, ok := res.(*sdk.ListToolsResult); ok && err == nil {
					g.described(list)
				}
			})
			return g.call(ctx, r, next)
		}
		return next(ctx, method, req)
	}
}

// call answers a tool call.
func (g *Guard) call(ctx context.Context, r *sdk.CallToolRequest, next sdk.MethodHandler) (sdk.Result, error) {
	who, err := g.opts.Identify(ctx, r)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: err.Error()}
	}
	params, err := json.Marshal(r.Params)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the arguments aren't JSON"}
	}
	reply := g.inside.Call(ctx, who, headerOf(r), params, func(ctx context.Context, a *semel.Attempt, left []byte) mcp.Reply {
		run := *r
		if !bytes.Equal(left, params) {
			run.Params = &sdk.CallToolParamsRaw{}
			if err := json.Unmarshal(left, run.Params); err != nil {
				return replyOf(nil, semel.Aborted(err))
			}
		}
		return replyOf(next(context.WithValue(ctx, attemptKey{}, a), callMethod, &run))
	})
	if reply.Error != nil {
		var failure jsonrpc.Error
		if err := json.Unmarshal(reply.Error, &failure); err != nil {
			return nil, err
		}
		return nil, &failure
	}
	var result sdk.CallToolResult
	var spelled struct{ StructuredContent json.RawMessage } // with its numbers as they are
	if err := errors.Join(json.Unmarshal(reply.Result, &result), json.Unmarshal(reply.Result, &spelled)); err != nil {
		return nil, err
	}
	if spelled.StructuredContent != nil {
		result.StructuredContent = spelled.StructuredContent
	}
	if reply.Err != nil {
		result.SetError(reply.Err) // for the middleware around this one
	}
	return &result, nil
}

// replyOf is what a handler has returned, in JSON. What can't be encoded reaches no client, so
// nobody knows what the tool did.
func replyOf(res sdk.Result, err error) (reply mcp.Reply) {
	// One that is wrapped comes from another server, and the error around it has the mark.
	if failure, ok := err.(*jsonrpc.Error); ok {
		reply.Error, _ = json.Marshal(failure) // a number and strings
		return reply
	}
	result, ok := res.(*sdk.CallToolResult)
	switch {
	case err != nil:
	case !ok || result == nil:
		err = semel.Unknown(errors.New("the tool returned nothing"))
	default:
		reply.Err = result.GetError()
		if reply.Result, err = json.Marshal(result); err == nil {
			return reply
		}
		err = semel.Unknown(err)
	}
	reply.Err = err
	failure := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	if wrapped, ok := errors.AsType[*jsonrpc.Error](err); ok { // as the SDK answers
		failure.Code = wrapped.Code
	}
	reply.Error, _ = json.Marshal(failure) // the same
	return reply
}

// described takes note of a list of tools, and returns it with the hints that the guard makes true.
// The server's own descriptions stay as they are.
func (g *Guard) described(list *sdk.ListToolsResult) *sdk.ListToolsResult {
	text, err := json.Marshal(list)
	if err != nil {
		return list // the SDK will say so
	}
	var hinted struct{ Tools []*sdk.Tool }
	if json.Unmarshal(g.inside.Tools(text), &hinted) != nil || len(hinted.Tools) != len(list.Tools) {
		return list
	}
	copied := *list
	copied.Tools = slices.Clone(list.Tools)
	for i, t := range hinted.Tools {
		if t.Annotations != nil && t.Annotations.IdempotentHint {
			tool := *list.Tools[i]
			tool.Annotations = t.Annotations
			copied.Tools[i] = &tool
		}
	}
	return &copied
}

// caller is who sends a call, as far as the SDK's transports say.
func caller(ctx context.Context, r *sdk.CallToolRequest, callers *semelhttp.Guard) (semelhttp.Caller, error) {
	switch {
	case r.Extra != nil && r.Extra.TokenInfo != nil && r.Extra.TokenInfo.UserID != "":
		return semelhttp.Caller{Principal: r.Extra.TokenInfo.UserID}, nil
	case headerOf(r) == nil: // a pipe, which has one client
		return semelhttp.Caller{Principal: "local"}, nil
	}
	return callers.Caller((&http.Request{Header: headerOf(r)}).WithContext(ctx))
}

func headerOf(r *sdk.CallToolRequest) http.Header {
	if r.Extra == nil {
		return nil
	}
	return r.Extra.Header
}
