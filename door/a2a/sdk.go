package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"iter"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/jsonrpc"
	"github.com/semelhq/semel/store"
)

// inside is the exchange with an agent in this process, by the SDK.
type inside struct {
	*handler
	req    *a2a.SendMessageRequest
	stream bool
	yield  func(a2a.Event, error) bool
	gone   bool // nobody consumes any more
}

// say yields to the consumer, as long as there is one.
func (s *inside) say(e a2a.Event, err error) { s.gone = s.gone || !s.yield(e, err) }

// send makes the agent handle the message.
func (s *inside) send(ctx context.Context, _ string, c *conversation) (judge.Finding, outcome) {
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	for e, err := range s.answers(ctx) {
		if err != nil {
			return s.failed(ctx, c, err)
		}
		leave := func() { s.say(e, nil) }
		raw, err := json.Marshal(a2a.StreamResponse{Event: e})
		if err != nil { // nobody would get it
			return s.failed(ctx, c, semel.Unknown(errors.Join(a2a.ErrInvalidAgentResponse, err)))
		}
		said := readEvent(raw)
		if c.hear(said, raw, leave); said.over() {
			break // a queue may stay open after the end, see [inside.follow]
		}
	}
	if c.said.kind == "" {
		return s.failed(ctx, c, semel.Unknown(a2a.ErrInvalidAgentResponse))
	}
	return judge.Finding{}, outcome{}
}

// answers yields the agent's answers: one, unless the sender wants a stream.
func (s *inside) answers(ctx context.Context) iter.Seq2[a2a.Event, error] {
	if s.stream {
		return s.RequestHandler.SendStreamingMessage(ctx, s.req)
	}
	return func(yield func(a2a.Event, error) bool) {
		if result, err := s.RequestHandler.SendMessage(ctx, s.req); result != nil || err != nil {
			yield(result, err)
		}
	}
}

// verdicts of errors that the agent has marked.
var verdicts = map[store.Disposition]judge.Verdict{
	semel.DispositionRejected: judge.Rejected, semel.DispositionFailed: judge.Failed, semel.DispositionAborted: judge.Aborted,
}

// failed judges an error of the agent. A mark on the error counts. An error that only says that
// the time is over proves nothing.
func (s *inside) failed(ctx context.Context, c *conversation, err error) (judge.Finding, outcome) {
	c.hold(true, func() { s.say(nil, err) })
	code := rpcCode(err)
	raw, _ := json.Marshal(sdkFailure{code, err.Error()}) // it has a number and a string
	own := judge.Rules{Own: true, Financial: s.operation.Financial}
	found := own.A2A(code, nil)
	if ctx.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		found = judge.Finding{}
	}
	if marked := c.execution.Ending(err); !marked.Unmarked {
		found.Verdict = verdicts[marked.Disposition]
	}
	return found, outcome{State: Failed, Error: raw}
}

// rejoin does nothing: the SDK has its own events of a task, for whoever subscribes to that.
func (s *inside) rejoin(context.Context, *semel.Call, *semel.Answer) (began, again bool) { return }

func (s *inside) ask(ctx context.Context, id string) json.RawMessage {
	task, err := s.RequestHandler.GetTask(ctx, &a2a.GetTaskRequest{ID: a2a.TaskID(id), Tenant: s.req.Tenant})
	if err != nil {
		return nil
	}
	raw, _ := json.Marshal(a2a.StreamResponse{Event: task}) // otherwise it isn't kept
	return raw
}

// follow ends with the state that a sender waits for. The SDK's queue may not: a reader that
// comes while a task ends gets one that nobody writes to.
func (s *inside) follow(ctx context.Context, id string) (followed bool) {
	for e, err := range s.RequestHandler.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: a2a.TaskID(id), Tenant: s.req.Tenant}) {
		if err != nil && !followed {
			return false
		}
		followed = true
		raw, _ := json.Marshal(a2a.StreamResponse{Event: e}) // otherwise it ends nothing
		said := readEvent(raw)
		if s.say(e, err); s.gone || err != nil || said.final() {
			break
		}
	}
	return followed
}

// replay yields an outcome in the SDK's form.
func (s *inside) replay(o *outcome) {
	var f sdkFailure
	var answer a2a.StreamResponse
	switch {
	case len(o.Error) > 0:
		_ = json.Unmarshal(o.Error, &f) // otherwise the error is empty
		s.say(nil, a2a.NewError(sdkErrorOf(f.Code), f.Message))
	case json.Unmarshal(o.Answer, &answer) == nil:
		s.say(answer.Event, nil)
	default: // somebody settled the call with something else
		s.refuse(refusalFor(semel.CodeResultNotKept))
	}
}

func (s *inside) refuse(f refusal) { s.say(nil, sdkError(f)) }

// sdkFailure is the recorded form of an agent's error.
type sdkFailure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// sdkErrors are the SDK's errors, by their JSON-RPC codes.
var sdkErrors = map[int]error{
	jsonrpc.ParseError: a2a.ErrParseError, jsonrpc.InvalidRequest: a2a.ErrInvalidRequest, jsonrpc.MethodNotFound: a2a.ErrMethodNotFound, jsonrpc.InvalidParams: a2a.ErrInvalidParams,
	jsonrpc.InternalError: a2a.ErrInternalError, jsonrpc.ServerError: a2a.ErrServerError, -32001: a2a.ErrTaskNotFound, -32002: a2a.ErrTaskNotCancelable,
	-32003: a2a.ErrPushNotificationNotSupported, -32004: a2a.ErrUnsupportedOperation, -32005: a2a.ErrUnsupportedContentType,
	-32006: a2a.ErrInvalidAgentResponse, -32007: a2a.ErrExtendedCardNotConfigured, -32008: a2a.ErrExtensionSupportRequired,
	-32009: a2a.ErrVersionNotSupported, -31401: a2a.ErrUnauthenticated, -31403: a2a.ErrUnauthorized,
}

func sdkErrorOf(code int) error {
	if err, ok := sdkErrors[code]; ok {
		return err
	}
	return a2a.ErrInternalError
}

// rpcCode returns the code of an SDK error.
func rpcCode(err error) int {
	for code, known := range sdkErrors {
		if errors.Is(err, known) {
			return code
		}
	}
	return jsonrpc.InternalError
}

// sdkError returns a refusal as an SDK error.
func sdkError(f refusal) error {
	base := sdkErrorOf(f.rpc)
	switch f.code {
	case door.CodeUnidentified:
		base = a2a.ErrUnauthenticated
	case semel.CodeForbidden:
		base = a2a.ErrUnauthorized
	}
	return a2a.NewError(base, f.detail).WithErrorInfoMeta(f.metadata())
}
