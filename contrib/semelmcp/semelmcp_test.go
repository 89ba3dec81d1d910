package semelmcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/contrib/semelmcp"
	"github.com/semelhq/semel/door/doortest"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

type refund struct {
	Order string `json:"order_id"`
	Cents int    `json:"cents"`
}

const number = `{"number":9223372036854775809}` // too large for a float64

// shop is a server of tools behind a guard.
type shop struct {
	t      *testing.T
	engine *semel.Engine
	server *sdk.Server
	runs   atomic.Int64
	asked  atomic.Int64 // questions to a person
	// listed are the server's own descriptions of its tools.
	listed []*sdk.Tool
	// work is what the tools do; nil: nothing.
	work func(ctx context.Context, r *sdk.CallToolRequest) error
}

func open(t *testing.T) *shop {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, engine: engine, server: sdk.NewServer(&sdk.Implementation{Name: "shop", Version: "1"}, nil)}
	handler := func(ctx context.Context, r *sdk.CallToolRequest, in refund) (*sdk.CallToolResult, any, error) {
		n := s.runs.Add(1)
		if s.work != nil {
			if err := s.work(ctx, r); err != nil {
				return nil, nil, err
			}
		}
		content := []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("refund %d of %s", n, in.Order)}}
		return &sdk.CallToolResult{Content: content, StructuredContent: json.RawMessage(number)}, nil, nil
	}
	sdk.AddTool(s.server, &sdk.Tool{Name: "refund"}, handler)
	sdk.AddTool(s.server, &sdk.Tool{Name: "fields"}, handler)
	sdk.AddTool(s.server, &sdk.Tool{Name: "confirmed"}, handler)
	sdk.AddTool(s.server, &sdk.Tool{Name: "status", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}}, handler)
	s.server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			res, err := next(ctx, method, req)
			if list, ok := res.(*sdk.ListToolsResult); ok {
				s.listed = list.Tools
			}
			return res, err
		}
	})
	guard, err := semelmcp.New(engine, semelmcp.Options{
		Operation: semel.Operation{Name: "tools", Remember: 90 * 24 * time.Hour, MaxWait: time.Minute},
		Tools: map[string]mcp.Tool{
			"fields":    {Fields: []string{"/order_id"}},
			"confirmed": {Operation: semel.Operation{Name: "confirmed", Confirmation: &semel.ConfirmationPolicy{}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.server.AddReceivingMiddleware(guard.Middleware)
	return s
}

// connect is a session of a stock client with the server.
func (s *shop) connect() *sdk.ClientSession {
	s.t.Helper()
	there, here := sdk.NewInMemoryTransports()
	if _, err := s.server.Connect(s.t.Context(), there, nil); err != nil {
		s.t.Fatal(err)
	}
	opts := &sdk.ClientOptions{ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		s.asked.Add(1)
		return &sdk.ElicitResult{Action: "accept"}, nil
	}}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, opts).Connect(s.t.Context(), here, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { session.Close() })
	return session
}

// call calls a tool, with a key unless that is empty.
func (s *shop) call(session *sdk.ClientSession, tool, key, order string, cents int) (*sdk.CallToolResult, error) {
	params := &sdk.CallToolParams{Name: tool, Arguments: refund{order, cents}}
	if key != "" {
		params.Meta = sdk.Meta{"idempotency-key": key}
	}
	return session.CallTool(s.t.Context(), params)
}

// said is the text of a result, and whether it says that it is that of another call.
func said(t *testing.T, res *sdk.CallToolResult, err error) (string, bool) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return res.Content[0].(*sdk.TextContent).Text, res.Meta["io.github.semelhq/replayed"] == true
}

// refusal is what a refusal says for programs.
func refusal(res *sdk.CallToolResult) map[string]any {
	facts, _ := res.Meta["io.github.semelhq/refusal"].(map[string]any)
	return facts
}

// TestOnce: a call runs once for its key, or for the fields that its tool declares. A duplicate gets
// the recorded result as it was, and what has neither runs each time and says so.
func TestOnce(t *testing.T) {
	for _, c := range []struct {
		tool, key string
		runs      int64
	}{{"refund", "k-1", 1}, {"fields", "", 1}, {"fields", "k-1", 1}, {"refund", "", 3}} {
		t.Run(c.tool+" "+c.key, func(t *testing.T) {
			s := open(t)
			for i := range 3 {
				session := s.connect() // each client begins anew
				res, err := s.call(session, c.tool, c.key, "o-1", 42)
				text, replayed := said(t, res, err)
				want := fmt.Sprintf("refund %d of o-1", min(int64(i+1), c.runs))
				if text != want || replayed != (c.runs == 1 && i > 0) {
					t.Errorf("try %d: %q, %t", i, text, replayed)
				}
				if unknown := res.Meta["io.github.semelhq/repetition"] == "unknown"; unknown != (c.runs == 3) {
					t.Errorf("try %d: the repetition is unknown: %t", i, unknown)
				}
			}
			if s.runs.Load() != c.runs {
				t.Errorf("%d runs", s.runs.Load())
			}
			if c.runs > 1 {
				return
			}
			res, err := s.call(s.connect(), c.tool, c.key, "o-1", 43)
			if text, _ := said(t, res, err); !res.IsError || refusal(res)["code"] != "conflict" || refusal(res)["action"] == nil || text == "" {
				t.Errorf("another amount: %q, %v", text, refusal(res))
			}
		})
	}
}

// TestNumbers: a replay has the numbers of the first answer.
func TestNumbers(t *testing.T) {
	s := open(t)
	var sent []string
	s.server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			res, err := next(ctx, method, req)
			if result, ok := res.(*sdk.CallToolResult); ok {
				text, _ := json.Marshal(result.StructuredContent)
				sent = append(sent, string(text))
			}
			return res, err
		}
	})
	session := s.connect()
	for range 2 {
		if _, err := s.call(session, "refund", "k-1", "o-1", 42); err != nil {
			t.Fatal(err)
		}
	}
	if len(sent) != 2 || sent[0] != number || sent[1] != number {
		t.Errorf("%q", sent)
	}
}

// TestJoin: a call that comes again while the first runs waits for it, and a client that leaves
// doesn't end it.
func TestJoin(t *testing.T) {
	s, began, release := open(t), make(chan struct{}), make(chan struct{})
	s.work = func(ctx context.Context, _ *sdk.CallToolRequest) error {
		close(began)
		<-release
		return ctx.Err()
	}
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	first := s.connect()
	go func() {
		_, err := first.CallTool(ctx, &sdk.CallToolParams{Name: "fields", Arguments: refund{"o-1", 42}})
		gone <- err
	}()
	<-began
	leave()
	if err := <-gone; err == nil {
		t.Error("the first client got an answer after it had left")
	}
	var others sync.WaitGroup
	for range 3 {
		session := s.connect()
		others.Go(func() {
			res, err := s.call(session, "fields", "", "o-1", 42)
			if err != nil || res.Meta["io.github.semelhq/replayed"] != true {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
	close(release)
	others.Wait()
	if s.runs.Load() != 1 {
		t.Errorf("%d runs", s.runs.Load())
	}
}

// TestEndings: what a tool returns decides what the next delivery gets.
func TestEndings(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		runs int64 // after two deliveries
		code any   // of the refusal that the second gets
	}{
		"a plain error proves that nothing was done": {errors.New("no connection"), 2, nil},
		"a refusal is kept":                          {semel.Rejected("too_late", errors.New("the order is too old")), 1, nil},
		"an error of JSON-RPC is kept":               {&jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no such order"}, 1, nil},
		"an unknown outcome is held":                 {semel.Unknown(errors.New("the bank didn't answer")), 1, "held"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			s.work = func(context.Context, *sdk.CallToolRequest) error { return c.err }
			for i := range 2 {
				res, err := s.call(s.connect(), "fields", "", "o-1", 42)
				switch wire, ok := errors.AsType[*jsonrpc.Error](c.err); {
				case ok:
					if got, is := errors.AsType[*jsonrpc.Error](err); !is || got.Code != wire.Code || got.Message != wire.Message {
						t.Errorf("delivery %d: %v", i, err)
					}
				case err != nil || !res.IsError || refusal(res)["code"] != c.code:
					t.Errorf("delivery %d: %+v, %v", i, res, err)
				case c.code == nil:
					if text, _ := said(t, res, err); !strings.Contains(c.err.Error(), text) && !strings.Contains(text, c.err.Error()) {
						t.Errorf("delivery %d: %q", i, text)
					}
				default:
					facts := refusal(res)
					if text, _ := said(t, res, err); facts["outcome"] != "unknown" || facts["action"] != "verify" || fmt.Sprint(facts["verify_with"]) != "[status]" || !strings.Contains(text, "status") {
						t.Errorf("delivery %d: %v %q", i, facts, text)
					}
				}
			}
			if s.runs.Load() != c.runs {
				t.Errorf("%d runs", s.runs.Load())
			}
		})
	}
}

// TestAnErrorOfAnotherServer: a tool without types that asks another server over MCP wraps the error of
// that. Its own mark counts, not the number of the other's.
func TestAnErrorOfAnotherServer(t *testing.T) {
	for _, code := range []int64{jsonrpc.CodeInternalError, jsonrpc.CodeInvalidParams} {
		s := open(t)
		s.server.AddTool(&sdk.Tool{Name: "remote", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			s.runs.Add(1)
			return nil, semel.Unknown(fmt.Errorf("the bank: %w", &jsonrpc.Error{Code: code, Message: "no"}))
		})
		for range 2 {
			if res, err := s.call(s.connect(), "remote", "k-1", "o-1", 42); err != nil || refusal(res)["code"] != "held" || s.runs.Load() != 1 {
				t.Errorf("%d: after %d runs %+v, %v", code, s.runs.Load(), res, err)
			}
		}
	}
}

// TestEffects: a tool keeps its calls to other systems in the ledger.
func TestEffects(t *testing.T) {
	s := open(t)
	s.work = func(ctx context.Context, r *sdk.CallToolRequest) error {
		a, ok := semelmcp.Attempt(ctx)
		if !ok {
			return errors.New("there is no attempt")
		}
		_, err := semel.Effect(ctx, a, "bank", func(context.Context, string) (string, error) { return "tx-1", nil })
		return err
	}
	res, err := s.call(s.connect(), "refund", "k-1", "o-1", 42)
	said(t, res, err)
	page, err := s.engine.Search(t.Context(), store.Query{Operation: "tools"})
	if err != nil || len(page.Records) != 1 || len(page.Records[0].Effects) != 1 || page.Records[0].Attributes["tool"] != "refund" || page.Records[0].Door != mcp.Name {
		t.Errorf("%+v, %v", page.Records, err)
	}
}

// TestHints: a list of tools has the hint where the guard makes it true, and the server's own
// description stays as it is.
func TestHints(t *testing.T) {
	s := open(t)
	for range 2 {
		list, err := s.connect().ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) != 4 {
			t.Fatal(list, err)
		}
		for _, tool := range list.Tools {
			if hinted := tool.Annotations != nil && tool.Annotations.IdempotentHint; hinted != (tool.Name == "fields") || tool.InputSchema == nil {
				t.Errorf("%s: %t", tool.Name, hinted)
			}
		}
		for _, tool := range s.listed {
			if tool.Annotations != nil && tool.Annotations.IdempotentHint {
				t.Errorf("the server itself says that %s is idempotent", tool.Name)
			}
		}
	}
}

// TestRounds: each round of a call that asks for input runs once, and a requestState is good for one
// round.
func TestRounds(t *testing.T) {
	s := open(t)
	sdk.AddTool(s.server, &sdk.Tool{Name: "ask"}, func(_ context.Context, r *sdk.CallToolRequest, _ struct{}) (*sdk.CallToolResult, any, error) {
		n := s.runs.Add(1)
		if len(r.Params.InputResponses) == 0 {
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"sure": &sdk.ElicitParams{Message: "Sure?"}}, RequestState: "s-1"}, nil, nil
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("round %d", n)}}}, nil, nil
	})
	params := sdk.CallToolParams{Meta: sdk.Meta{"idempotency-key": "k-1"}, Name: "ask", Arguments: struct{}{}}
	for range 2 { // the client answers by itself
		res, err := s.connect().CallTool(t.Context(), &params)
		if text, _ := said(t, res, err); text != "round 2" {
			t.Errorf("%q", text)
		}
	}
	params.Meta["idempotency-key"], params.RequestState = "k-2", "s-1"
	params.InputResponses = sdk.InputResponseMap{"sure": &sdk.ElicitResult{Action: "accept"}}
	if _, err := s.connect().CallTool(t.Context(), &params); err == nil || !strings.Contains(err.Error(), "requestState") {
		t.Errorf("another round with a used state: %v", err)
	}
	if s.runs.Load() != 2 {
		t.Errorf("%d runs", s.runs.Load())
	}
}

// TestConfirmation: a client that can ask a person does so before the call runs, and the tool sees
// nothing of that.
func TestConfirmation(t *testing.T) {
	s := open(t)
	s.work = func(_ context.Context, r *sdk.CallToolRequest) error {
		if r.Params.RequestState != "" || len(r.Params.InputResponses) > 0 {
			return fmt.Errorf("the tool got %+v", r.Params)
		}
		return nil
	}
	for range 2 {
		res, err := s.call(s.connect(), "confirmed", "k-1", "o-1", 42)
		if text, _ := said(t, res, err); text != "refund 1 of o-1" || s.asked.Load() != 1 {
			t.Errorf("%q after %d questions", text, s.asked.Load())
		}
	}
}

// TestHTTP: over HTTP, callers are told apart by their credentials, and the key may be in the header.
func TestHTTP(t *testing.T) {
	s := open(t)
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.server }, &sdk.StreamableHTTPOptions{Stateless: true})
	there := httptest.NewServer(handler)
	defer there.Close()
	for _, c := range []struct {
		token string
		runs  int64
	}{{"anna", 1}, {"anna", 1}, {"ben", 2}} {
		client := &http.Client{Transport: with{"Authorization": "Bearer " + c.token, "Idempotency-Key": "0f8fad5b"}}
		session, err := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: there.URL, HTTPClient: client}, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.call(session, "refund", "", "o-1", 42)
		if text, _ := said(t, res, err); s.runs.Load() != c.runs || text != fmt.Sprintf("refund %d of o-1", c.runs) {
			t.Errorf("%s: %q after %d runs", c.token, text, s.runs.Load())
		}
		session.Close()
	}
}

// with sends headers with each request.
type with map[string]string

func (h with) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h {
		r.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestDoor: every decision of the engine gets the answer that the table of all doors says.
func TestDoor(t *testing.T) {
	doortest.Run(t, doortest.Door{Open: func(t *testing.T, e *semel.Engine, work func() error) doortest.Deliver {
		guard, err := semelmcp.New(e, semelmcp.Options{Operation: semel.Operation{Name: "tools"}, Wait: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		handler := guard.Middleware(func(_ context.Context, method string, _ sdk.Request) (sdk.Result, error) {
			if method == "tools/list" {
				return &sdk.ListToolsResult{}, nil
			}
			res := &sdk.CallToolResult{Content: []sdk.Content{}}
			if err := work(); err != nil {
				res.SetError(semel.Failure(err))
			}
			return res, nil
		})
		return func(key string) (reply doortest.Reply) {
			params := &sdk.CallToolParamsRaw{Meta: sdk.Meta{"idempotency-key": key}, Name: "pay"}
			res, err := handler(t.Context(), "tools/call", &sdk.CallToolRequest{Params: params})
			if failure, ok := errors.AsType[*jsonrpc.Error](err); ok {
				var data struct {
					Semel struct {
						Code   semel.Code
						Action store.Action
					}
				}
				if err := json.Unmarshal(failure.Data, &data); err != nil {
					t.Error(err)
				}
				return doortest.Reply{Code: string(data.Semel.Code), Action: data.Semel.Action}
			}
			result := res.(*sdk.CallToolResult)
			reply.Code, _ = refusal(result)["code"].(string)
			action, _ := refusal(result)["action"].(string)
			reply.Action = store.Action(action)
			result.Meta = nil // a mark names the delivery
			text, err := json.Marshal(result)
			if err != nil {
				t.Error(err)
			}
			reply.Body = string(text)
			return reply
		}
	}})
}
