package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
)

// Options configures [Wrap]. Only Operation is required.
type Options struct {
	// Operation is the policy for messages, and is registered. Its MaxResult bounds the
	// recorded tasks: for a larger one, duplicates get the answer of the handler's GetTask.
	Operation semel.Operation
	// Identify says who sent a message. Defaults to the authenticated user in the SDK's
	// CallContext. Without one, the credential identifies the sender; without a credential,
	// only senders on a loopback address are accepted.
	Identify func(ctx context.Context) (semelhttp.Caller, error)
	// Runner runs the messages. Defaults to the handler's own; give yours to close it after
	// your server, see [door.Runner].
	Runner *door.Runner
	// Timeout is how long the agent may take for a message. Zero: as long as it likes.
	Timeout time.Duration
	// Wait is how long a duplicate of a message in progress waits for its task, and for the
	// task's end unless the sender doesn't want to wait for that. Defaults to 30 seconds.
	Wait time.Duration
	// Attributes are kept with a message's record, like [GatewayOptions].Attributes.
	Attributes map[string]string
}

// Wrap guards an agent: in the handler that it returns, a message executes once. If next comes
// from a2asrv.NewHandler, the guard runs after its interceptors, so that they authenticate the
// sender first; Wrap doesn't change next.
//
// The agent's answer is sent once it is recorded. Events of a stream are sent at once, except
// the last. The agent goes on if its caller hangs up. The code of an agent's error decides, see
// package judge; other errors are failures.
//
// Refusals are errors of the SDK: ErrInvalidParams for a messageId that was used for another
// message, ErrServerError for messages that may be sent again, with Semel's code in their
// metadata.
func Wrap(engine *semel.Engine, next a2asrv.RequestHandler, opts Options) (a2asrv.RequestHandler, error) {
	if engine == nil || next == nil {
		return nil, errors.New("a2a: Wrap needs an engine and a handler")
	}
	if opts.Runner == nil {
		opts.Runner = door.NewRunner(engine)
	}
	g, err := newGuard(engine, opts.Runner, opts.Operation, opts.Attributes, opts.Timeout, cmp.Or(opts.Wait, DefaultWait))
	if err != nil {
		return nil, err
	}
	if opts.Identify == nil {
		callers, err := semelhttp.New(engine, nil)
		if err != nil {
			return nil, err
		}
		opts.Identify = func(ctx context.Context) (semelhttp.Caller, error) { return caller(ctx, callers) }
	}
	if outer, ok := next.(*a2asrv.InterceptedHandler); ok {
		guarded := *outer
		guarded.Handler = &handler{outer.Handler, g, opts.Identify}
		return &guarded, nil
	}
	return &handler{next, g, opts.Identify}, nil
}

// caller returns who sends a message, as far as the SDK's transports and interceptors know.
func caller(ctx context.Context, callers *semelhttp.Guard) (semelhttp.Caller, error) {
	if cc, ok := a2asrv.CallContextFrom(ctx); ok && cc.User != nil && cc.User.Authenticated && cc.User.Name != "" {
		return semelhttp.Caller{Principal: cc.User.Name}, nil
	}
	r := (&http.Request{Header: headerOf(ctx)}).WithContext(ctx)
	return callers.Caller(r)
}

// headerOf returns the header of the request, as the SDK's transport has kept it.
func headerOf(ctx context.Context) http.Header {
	header := http.Header{}
	if cc, ok := a2asrv.CallContextFrom(ctx); ok {
		for name, values := range cc.ServiceParams().List() {
			header[http.CanonicalHeaderKey(name)] = values
		}
	}
	return header
}

// handler guards the two methods that send a message. The others pass.
type handler struct {
	a2asrv.RequestHandler
	*guard
	identify func(ctx context.Context) (semelhttp.Caller, error)
}

// SendMessage implements [a2asrv.RequestHandler].
func (h *handler) SendMessage(ctx context.Context, req *a2a.SendMessageRequest) (result a2a.SendMessageResult, err error) {
	h.serve(ctx, &inside{handler: h, req: req, yield: func(e a2a.Event, failure error) bool {
		result, _ = e.(a2a.SendMessageResult)
		err = failure
		return false
	}})
	return result, err
}

// SendStreamingMessage implements [a2asrv.RequestHandler].
func (h *handler) SendStreamingMessage(ctx context.Context, req *a2a.SendMessageRequest) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		h.serve(ctx, &inside{handler: h, req: req, stream: true, yield: yield})
	}
}

// serve answers a message.
func (h *handler) serve(ctx context.Context, s *inside) {
	door.Tell(ctx, h.engine.Internal(), Name, headerOf(ctx), func(ctx context.Context) (semel.Delivered, bool) {
		call, err := h.call(ctx, s.req)
		if err != nil {
			f := refusalOfRequest(err)
			s.refuse(f)
			return semel.Delivered{ID: semel.ID{Operation: h.operation.Name}, Code: f.code, Err: err}, true
		}
		now := s.req.Config != nil && s.req.Config.ReturnImmediately
		c := &conversation{guard: h.guard, exchange: s, stream: s.stream, now: now}
		return c.converse(ctx, call), true
	})
}

// call makes a call from a message.
func (h *handler) call(ctx context.Context, req *a2a.SendMessageRequest) (semel.Call, error) {
	who, err := h.identify(ctx)
	if e, ok := errors.AsType[*semel.Error](err); err != nil && !ok || ok && e.Code == "" {
		return semel.Call{}, &semel.Error{Code: door.CodeUnidentified, Err: err}
	} else if err != nil {
		return semel.Call{}, err
	}
	raw, err := json.Marshal(req)
	var m message
	if err == nil {
		m, err = readMessage("go", raw)
	}
	if err != nil {
		return semel.Call{}, invalid(err)
	}
	return m.call(h.guard, who, headerOf(ctx))
}
