package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/sse"
)

const contentJSON = "application/json"

// sends are the methods that send a message.
var sends = map[string]struct{ stream, old bool }{
	"SendMessage": {}, "SendStreamingMessage": {stream: true},
	"message/send": {old: true}, "message/stream": {stream: true, old: true},
}

// asks are the methods that ask for a task, in 1.0 and 0.3: for its state, or to follow it.
var asks = map[bool][2]string{false: {"GetTask", "tasks/get"}, true: {"SubscribeToTask", "tasks/resubscribe"}}

// passes are the methods that start no work, and passesREST the paths of the REST binding where
// a POST starts none.
var (
	passes = regexp.MustCompile(`^((Get|List|Cancel|SubscribeTo)Task|ListTasks|(Create|Get|List|Delete)TaskPushNotificationConfigs?|GetExtendedAgentCard|` +
		`tasks/(get|list|cancel|resubscribe|pushNotificationConfig/(set|get|list|delete))|agent/getAuthenticatedExtendedCard)$`)
	passesREST = regexp.MustCompile(`(^|/)tasks/[^/]+(:cancel|:subscribe|/pushNotificationConfigs)$`)
)

// request is a request to an agent.
type request struct {
	in      *http.Request // to send on, except for its body
	body    []byte
	rpc     bool   // by JSON-RPC rather than REST
	old     bool   // by a method of version 0.3
	stream  bool   // its answer is a stream
	public  bool   // asks for something public, such as the agent's card
	id      []byte // JSON-RPC's; nil: it has none that we can read
	base    string // the path of the REST binding, before message:send
	binding string // the form of the answers
	msg     message
}

// plainPath reports whether a path is unambiguous: one that the agent reads as another path may
// not pass.
func plainPath(p string) bool {
	clean := path.Clean("/" + p)
	return p == "" || p == clean || p == clean+"/"
}

// read reads the body. It reports false if the request sends no message and may pass. The error
// is for the caller.
func (r *request) read() (guarded bool, err error) {
	params := r.body
	r.binding = "rest"
	if r.rpc {
		rpc, err := jsonrpc.Read(r.body)
		r.id = rpc.ID
		if err == nil && passes.MatchString(rpc.Method) {
			if err := canon.Check(rpc.Params, canon.Exact); rpc.Params != nil && err != nil {
				return false, jsonrpc.NotJSON(err)
			}
			return false, nil
		}
		if err != nil {
			return false, err
		}
		send, known := sends[rpc.Method]
		if !known {
			return false, &jsonrpc.Error{Code: jsonrpc.MethodNotFound, Message: "The method isn't one of A2A that this gateway knows. Nothing was sent on."}
		}
		r.stream, r.old, params, r.binding = send.stream, send.old, rpc.Params, "jsonrpc/1.0"
		if r.old {
			r.binding = "jsonrpc/0.3"
		}
	}
	if r.msg, err = readMessage(r.binding, params); err == nil {
		return true, nil
	}
	if e, ok := errors.AsType[*canon.SyntaxError](err); ok && r.rpc {
		return false, jsonrpc.NotJSON(e)
	}
	return false, invalid(err)
}

// invalid says that a message isn't one.
func invalid(err error) error {
	return &semel.Error{Code: semel.CodeInvalidCall, Message: "the message isn't valid: " + err.Error()}
}

// unwrap finds the result or the error in an agent's answer, or in the data of an event. It
// reports false if that doesn't answer this request.
func (r *request) unwrap(text []byte) (result, failure []byte, ok bool) {
	switch {
	case r.rpc:
		return jsonrpc.ReadAnswer(text, r.id)
	case canon.Check(text, canon.Exact) != nil || jsonrpc.First(text) != '{':
		return nil, nil, false
	case jsonscan.Member(text, "error") != nil:
		return nil, text, true
	}
	return text, nil, true
}

// wrap puts a result, or an error, in the envelope for this request's answer. The REST binding
// has none.
func (r *request) wrap(result, failure []byte) []byte {
	switch {
	case r.rpc:
		return jsonrpc.Answer(r.id, result, failure)
	case failure != nil:
		return failure
	}
	return result
}

// asking returns the request to the agent for a task's state, or to follow the task.
func (r *request) asking(ctx context.Context, task string, follow bool) *http.Request {
	var out *http.Request
	if r.rpc {
		method, params := asks[follow][0], map[string]string{"id": task}
		if r.old {
			method = asks[follow][1]
		}
		if r.msg.tenant != "" {
			params["tenant"] = r.msg.tenant
		}
		raw, _ := json.Marshal(map[string]any{"jsonrpc": jsonrpc.Version, "id": json.RawMessage(r.id), "method": method, "params": params}) // valid
		out = body.With(ctx, r.in, raw)
	} else {
		method, suffix := http.MethodGet, ""
		if follow {
			suffix = ":subscribe"
			if !strings.HasSuffix(r.base, "/v1/") { // version 0.3 subscribes by GET
				method = http.MethodPost
			}
		}
		out = body.With(ctx, r.in, nil)
		out.Method, out.URL.Path = method, r.base+"tasks/"+task+suffix
		out.URL.RawPath = (&url.URL{Path: r.base}).EscapedPath() + "tasks/" + url.PathEscape(task) + suffix
	}
	out.Header.Del(semelhttp.DefaultKeyHeader)
	out.Header.Set("Accept", contentJSON)
	if follow {
		out.Header.Set("Accept", sse.MediaType)
	}
	return out
}

// refusalOfRequest returns the refusal for an error in reading a request or making a call.
func refusalOfRequest(err error) refusal {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		r := refusalFor(semel.CodeInvalidCall)
		r.rpc, r.detail = e.Code, e.Message
		return r
	}
	return refusalOf(err, nil)
}
