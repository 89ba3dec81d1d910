package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/paramheader"
	"github.com/semelhq/semel/store"
)

// taskSuffix ends the name of the operation that follows the tasks of another. It has ordinary calls,
// so the store keeps, forgets and erases their results as any others.
const taskSuffix = ".task"

// Declares reports whether an operation is the gateway's own: it follows tasks. Nobody else may begin
// or end its calls.
func (g *Gateway) Declares(operation string) bool {
	name, own := strings.CutSuffix(operation, taskSuffix)
	named := func(p *policy) bool { return p.op.Name == name }
	return own && (named(g.plain) || slices.ContainsFunc(slices.Collect(maps.Values(g.tools)), named))
}

// tasksExtension is the extension of clients that take a task in place of a result.
const tasksExtension = metaPrefix + "tasks"

// taskParams declare the extension.
var taskParams = []byte(`{"_meta":{"` + capabilitiesMember + `":{"extensions":{"` + tasksExtension + `":{}}}}}`)

// look is how soon the gateway asks for a task again at first. It bounds how much that loads a server.
const look = 50 * time.Millisecond

// task is a call that the server goes on with after it has answered (the Tasks extension).
type task struct {
	id        string
	ttl, poll time.Duration // zero: for ever; as the gateway likes
}

// readTask reads a result that is a task.
func readTask(result []byte) (t task, ok bool) {
	kind, _ := jsonscan.Text(jsonscan.Member(result, "resultType"))
	t.id, _ = jsonscan.Text(jsonscan.Member(result, "taskId"))
	var in struct{ TTLMs, PollIntervalMs int64 }
	_ = json.Unmarshal(result, &in) // what isn't a number counts as left out
	t.ttl, t.poll = time.Duration(max(in.TTLMs, 0))*time.Millisecond, time.Duration(max(in.PollIntervalMs, 0))*time.Millisecond
	return t, kind == "task" && t.id != ""
}

// follower follows a task until it has ended, with the credential of a caller.
type follower struct {
	*Gateway
	task
	life time.Duration   // how long it follows; the next duplicate that wants the result goes on
	as   request         // as which it asks
	ends context.Context // when it gives up before; another may go on then
	kept semel.Result
}

// following makes the call that follows a task of rec's call: a later call under its key has its own.
func (c *conversation) following(ends context.Context, rec *semel.Record, t task) (semel.Call, *follower) {
	call := c.call
	call.Operation, call.Scope, call.Confirm = call.Operation+taskSuffix, strings.TrimPrefix(fmt.Sprintf("%s&task=%d", call.Scope, rec.Origin), "&"), ""
	call.Fingerprint = store.NewFingerprint(semel.SchemeJSON, sha256.Sum256([]byte(t.id)))
	life := c.policy.op.Window
	if t.ttl > 0 {
		life = min(life, max(t.ttl, c.opts.Timeout)) // a server may mean the time after the end
	}
	return call, &follower{Gateway: c.Gateway, task: t, life: life, ends: ends, as: request{in: c.req.in, modern: c.req.modern, params: taskParams}}
}

// Run asks the server for the task, at first soon, and then after a quarter of the time so far. It
// gives up when the server may forget the task, and within the window of the call, or a server that
// never ends its tasks would have all of them followed for ever.
//
// A crash leaves a lease that ends: the next duplicate that wants the result follows the task. A
// crash after the end is recorded leaves nothing to do.
func (f *follower) Run(x door.Run) semel.Ending {
	ctx, cancel := context.WithTimeout(x.Attempt.Context(), f.life)
	defer cancel()
	defer context.AfterFunc(f.ends, cancel)()
	for began := time.Now(); ; {
		result, failure, status := f.ask(ctx, &f.as, "tasks/get", f.id, map[string]any{"taskId": f.id})
		var o outcome
		switch said, _ := jsonscan.Text(jsonscan.Member(result, "status")); {
		case said == "completed":
			o.Result = jsonscan.Member(result, "result")
		case said == "failed":
			o.Error = jsonscan.Member(result, "error")
		case said == "cancelled":
			o.Error = jsonrpc.ErrorOf(jsonrpc.InternalError, "The task was cancelled.", nil)
		}
		if o.Result != nil || o.Error != nil {
			f.kept = o.recorded()
			return semel.Ending{Disposition: semel.DispositionCompleted, Result: f.kept}
		}
		pause := max(f.poll, look, time.Since(began)/4)
		if f.ttl > 0 {
			pause = min(pause, max(f.poll, look, f.ttl/4)) // or its result is gone
		}
		if failure == nil && (status/100 != 4 || status == http.StatusTooManyRequests) {
			select {
			case <-time.After(pause):
				continue
			case <-ctx.Done():
			}
		}
		return semel.Ending{Disposition: semel.DispositionAborted, Failure: store.Failure{Message: "nobody follows the task any more"}}
	}
}

// ofTask is what a duplicate gets of a call that became a task: that task, if it declares the
// extension itself, as long as the task is there; or else the result, which it waits for.
func (c *conversation) ofTask(ctx context.Context, rec *semel.Record, o outcome) (outcome, *refusal) {
	t, ok := readTask(o.Result)
	if !ok {
		return o, nil
	}
	declared := jsonscan.At(c.req.capable(), "extensions", tasksExtension) != nil
	now, err := c.engine.Internal().Store().Now(ctx)
	if declared && (t.ttl == 0 || err != nil || now.Sub(rec.EndedAt) < t.ttl) {
		return o, nil
	}
	ctx, cancel := context.WithTimeout(c.interest, c.opts.Wait)
	defer cancel()
	call, follower := c.following(ctx, rec, t)
	ans, err := c.deliver(ctx, call, follower)
	res, f := c.found(&ans, err)
	if f == nil && ans.Decision == semel.Execute {
		res = follower.kept
	}
	switch {
	case f == nil && !res.IsZero():
		return recall(res.Data), nil
	case declared:
		return o, nil
	}
	unknown := refusalOf(&fault{
		status: http.StatusBadRequest, rpc: missingCapability, message: "The call became a task, and its result isn't known. Declare " + tasksExtension + " to get the task.",
		data: map[string]any{"requiredCapabilities": map[string]any{"extensions": map[string]any{tasksExtension: struct{}{}}}},
	}, nil)
	return o, &unknown
}

// ownID is the id of the gateway's own requests.
var ownID = json.RawMessage(`"semel"`)

// ask asks the server something of the gateway's own, as the sender of a request would.
func (g *Gateway) ask(ctx context.Context, as *request, method, name string, params map[string]any) (result, failure []byte, status int) {
	ctx, cancel := context.WithTimeout(ctx, g.opts.Timeout)
	defer cancel()
	if as.modern {
		params["_meta"] = map[string]any{versionMember: Modern, capabilitiesMember: json.RawMessage(as.capable())}
	}
	text, err := json.Marshal(map[string]any{"jsonrpc": jsonrpc.Version, "id": ownID, "method": method, "params": params})
	if err != nil {
		return nil, jsonrpc.ErrorOf(jsonrpc.InternalError, err.Error(), nil), 0
	}
	out := body.With(ctx, as.in, text)
	maps.DeleteFunc(out.Header, func(name string, _ []string) bool {
		return strings.HasPrefix(name, paramheader.Prefix) || name == semelhttp.DefaultKeyHeader
	})
	if as.modern {
		out.Header[methodHeader], out.Header[nameHeader] = []string{method}, []string{paramheader.Encode(name)}
	}
	return jsonrpc.Ask(g.proxy.Send, out, ownID)
}

// follow follows the task that the call has become, if it has, after its answer.
func (c *conversation) follow(ctx context.Context, rec *semel.Record) {
	if t, ok := readTask(c.result); ok {
		call, f := c.following(c.closing, rec, t)
		c.background.Go(func() {
			if _, err := c.runner.Do(ctx, call, door.Work{Handler: f}); err != nil && !callctx.HungUp(c.closing, err) {
				c.engine.Internal().Troubled(door.NotRecorded(Name, err))
			}
		})
	}
}
