package a2a_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/semelhq/semel"
	once "github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/store"
)

// agent is an agent by the SDK. What it does is up to the text of the message.
type agent struct {
	runs atomic.Int64
	// release lets those go on whose message says slow; began gets one value for each.
	release chan struct{}
	began   chan struct{}
}

func newAgent() *agent { return &agent{release: make(chan struct{}), began: make(chan struct{}, 100)} }

func (a *agent) Execute(ctx context.Context, x *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		n := a.runs.Add(1)
		what := x.Message.Parts[0].Text()
		if what == "say" {
			yield(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart(fmt.Sprint("run ", n))), nil)
			return
		}
		if x.StoredTask == nil && !yield(a2a.NewSubmittedTask(x, x.Message), nil) {
			return
		}
		if !yield(a2a.NewStatusUpdateEvent(x, a2a.TaskStateWorking, nil), nil) {
			return
		}
		if strings.HasPrefix(what, "slow") {
			a.began <- struct{}{}
			<-a.release
		}
		if !yield(a2a.NewArtifactEvent(x, a2a.NewTextPart(fmt.Sprint("run ", n))), nil) {
			return
		}
		end := map[string]a2a.TaskState{"fail": a2a.TaskStateFailed, "ask": a2a.TaskStateInputRequired, "reject": a2a.TaskStateRejected}[what]
		if end == "" {
			end = a2a.TaskStateCompleted
		}
		yield(a2a.NewStatusUpdateEvent(x, end, nil), nil)
	}
}

func (a *agent) Cancel(_ context.Context, x *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(x, a2a.TaskStateCanceled, nil), nil)
	}
}

// serve is the agent over all bindings, behind what wraps its handler.
func (a *agent) serve(handler a2asrv.RequestHandler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(handler))
	mux.Handle("/old", old(a2asrv.NewJSONRPCHandler(handler)))
	mux.Handle("/rest/", http.StripPrefix("/rest", a2asrv.NewRESTHandler(handler)))
	mux.Handle("/oldrest/v1/", http.StripPrefix("/oldrest/v1", a2asrv.NewRESTHandler(handler)))
	return mux
}

// newNames are what methods of version 0.3 are called in 1.0.
var newNames = map[string]string{
	"message/send": "SendMessage", "message/stream": "SendStreamingMessage", "tasks/get": "GetTask",
	"tasks/resubscribe": "SubscribeToTask", "tasks/cancel": "CancelTask",
}

// old has a handler of version 1.0 speak 0.3, as far as tests need it.
func old(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		for name, is := range newNames {
			raw = bytes.Replace(raw, []byte(`"method":"`+name+`"`), []byte(`"method":"`+is+`"`), 1)
		}
		raw = bytes.ReplaceAll(bytes.ReplaceAll(raw, []byte(`"role":"user"`), []byte(`"role":"ROLE_USER"`)), []byte(`"kind":"text",`), nil)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
		next.ServeHTTP(&oldWriter{w}, r)
	})
}

// oldWriter writes answers of version 1.0 as those of 0.3.
type oldWriter struct{ http.ResponseWriter }

func (w *oldWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w *oldWriter) Flush()                      { _ = http.NewResponseController(w.ResponseWriter).Flush() }

var (
	wrapper = regexp.MustCompile(`"result":\{"(task|message|statusUpdate|artifactUpdate)":\{(.*)\}\}`)
	bare    = regexp.MustCompile(`"result":\{"id"`)
	kinds   = map[string]string{"task": "task", "message": "message", "statusUpdate": "status-update", "artifactUpdate": "artifact-update"}
	newWord = regexp.MustCompile(`TASK_STATE_[A-Z_]+`)
)

func (w *oldWriter) Write(p []byte) (int, error) {
	text := bare.ReplaceAll(p, []byte(`"result":{"kind":"task","id"`))
	if m := wrapper.FindSubmatchIndex(text); m != nil {
		kind := kinds[string(text[m[2]:m[3]])]
		text = slices.Concat(text[:m[0]], []byte(`"result":{"kind":"`+kind+`",`), text[m[4]:m[5]], []byte("}"), text[m[1]:])
	}
	text = newWord.ReplaceAllFunc(text, func(s []byte) []byte { return []byte(plain(string(s))) })
	_, err := oldWords.WriteString(w.ResponseWriter, string(text))
	return len(p), err
}

var oldWords = strings.NewReplacer(`"ROLE_USER"`, `"user"`, `"ROLE_AGENT"`, `"agent"`, `{"text":`, `{"kind":"text","text":`, `{"messageId"`, `{"kind":"message","messageId"`)

// world is an agent behind one form of the door.
type world struct {
	t *testing.T
	*agent
	*semelhttptest.Service
	url     string
	handler http.Handler
}

// operation is that of messages in tests.
var operation = semel.Operation{Name: "messages", MaxWait: time.Minute}

// forms are the two forms of the door, each before an agent of its own.
var forms = map[string]func(t *testing.T) *world{
	"wrapped": func(t *testing.T) *world { return wrapped(t, once.Options{Operation: operation, Wait: time.Minute}) },
	"gateway": func(t *testing.T) *world {
		return behind(t, once.GatewayOptions{Operation: operation, Wait: time.Minute})
	},
}

// wrapped is an agent whose handler is wrapped.
func wrapped(t *testing.T, opts once.Options) *world {
	w := &world{t: t, agent: newAgent(), Service: semelhttptest.New(t, nil)}
	handler, err := once.Wrap(w.Engine, a2asrv.NewHandler(w.agent, a2asrv.WithCallInterceptors(signedIn{})), opts)
	if err != nil {
		t.Fatal(err)
	}
	w.url = listen(t, w.serve(handler))
	return w
}

// signedIn is an interceptor that authenticates the sender.
type signedIn struct {
	a2asrv.PassthroughCallInterceptor
}

func (signedIn) Before(ctx context.Context, cc *a2asrv.CallContext, _ *a2asrv.Request) (context.Context, any, error) {
	who := "tester"
	if said, ok := cc.ServiceParams().Get(semelhttptest.CallerHeader); ok {
		who = said[0]
	}
	cc.User = a2asrv.NewAuthenticatedUser(who, nil)
	return ctx, nil, nil
}

// behind is a stock agent behind a gateway.
func behind(t *testing.T, opts once.GatewayOptions) *world {
	a := newAgent()
	w := gateway(t, a.serve(a2asrv.NewHandler(a, a2asrv.WithCallInterceptors(signedIn{}))), opts)
	w.agent = a
	return w
}

// gateway is a gateway before any handler.
func gateway(t *testing.T, upstream http.Handler, opts once.GatewayOptions) *world {
	w := &world{t: t, Service: semelhttptest.New(t, nil)}
	opts.Upstream, _ = url.Parse(listen(t, upstream))
	g, err := once.NewGateway(w.Guard, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	w.url, w.handler = listen(t, g), g
	return w
}

func listen(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// answer is what a caller got: the objects of all events, or of the one answer, without
// their envelopes.
type answer struct {
	status int
	header http.Header
	text   string
	events []object
	code   string // that of the refusal; empty for an outcome
	action store.Action
}

type object = map[string]any

func member(o object, path ...string) any {
	var v any = o
	for _, name := range path {
		m, _ := v.(object)
		v = m[name]
	}
	return v
}

// last is the last event.
func (a *answer) last() object {
	if len(a.events) == 0 {
		return nil
	}
	return a.events[len(a.events)-1]
}

// task and state are those of the last event, whatever its form.
func (a *answer) task() string {
	for _, path := range [][]string{{"task", "id"}, {"id"}, {"statusUpdate", "taskId"}, {"taskId"}} {
		if s, ok := member(a.last(), path...).(string); ok {
			return s
		}
	}
	return ""
}

func (a *answer) state() string {
	for _, path := range [][]string{{"task"}, nil, {"statusUpdate"}} {
		if s, ok := member(a.last(), append(path, "status", "state")...).(string); ok {
			return s
		}
	}
	return ""
}

// binding is a way to send messages.
type binding struct{ name, path, send, stream, get string }

var (
	rpc     = binding{"JSON-RPC 1.0", "/rpc", "SendMessage", "SendStreamingMessage", "GetTask"}
	oldRPC  = binding{"JSON-RPC 0.3", "/old", "message/send", "message/stream", "tasks/get"}
	rest    = binding{"REST 1.0", "/rest", "", "", ""}
	oldREST = binding{"REST 0.3", "/oldrest/v1", "", "", ""}
	all     = []binding{rpc, oldRPC, rest, oldREST}
)

// body is a message in the form of the binding. Its id of JSON-RPC is never the same.
func (b binding) body(id, task, text string, stream bool) (path, raw string) {
	named := ""
	if task != "" {
		named = fmt.Sprintf(`,"taskId":%q`, task)
	}
	message := fmt.Sprintf(`{"messageId":%q%s,"role":"ROLE_USER","parts":[{"text":%q}]}`, id, named, text)
	if b == oldRPC {
		message = fmt.Sprintf(`{"kind":"message","messageId":%q%s,"role":"user","parts":[{"kind":"text","text":%q}]}`, id, named, text)
	}
	params := fmt.Sprintf(`{"message":%s,"metadata":{"try":%d}}`, message, ids.Add(1))
	method, suffix := b.send, "/message:send"
	if stream {
		method, suffix = b.stream, "/message:stream"
	}
	if method == "" {
		return b.path + suffix, params
	}
	return b.path, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, ids.Load(), method, params)
}

var ids atomic.Int64

// send sends a message, and reads the whole answer.
func (w *world) send(b binding, id, task, text string, stream bool, header ...string) *answer {
	w.t.Helper()
	path, raw := b.body(id, task, text, stream)
	return w.post(path, raw, header...)
}

// peek sends a message and doesn't want to wait for the end of its task.
func (w *world) peek(b binding, id, text string) *answer {
	w.t.Helper()
	path, raw := b.body(id, "", text, false)
	how := `"returnImmediately":true`
	if gateway := w.handler != nil; gateway && (b == oldRPC || b == oldREST) {
		how = `"blocking":false`
	}
	return w.post(path, strings.Replace(raw, `"metadata"`, `"configuration":{`+how+`},"metadata"`, 1))
}

func (w *world) post(path, raw string, header ...string) *answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+path, strings.NewReader(raw))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if b := path; b == "/rpc" || strings.HasPrefix(b, "/rest") {
		r.Header.Set("A2A-Version", "1.0")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Error(err)
		return &answer{}
	}
	defer resp.Body.Close()
	return read(w.t, resp)
}

// read reads an answer, of one object or a stream of them.
func read(t *testing.T, resp *http.Response) *answer {
	t.Helper()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	a := &answer{status: resp.StatusCode, header: resp.Header, text: string(raw)}
	texts := [][]byte{raw}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		texts = nil
		for line := range bytes.Lines(raw) {
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				texts = append(texts, data)
			}
		}
	}
	for _, text := range texts {
		var o object
		if json.Unmarshal(text, &o) != nil {
			continue
		}
		if result, ok := o["result"].(object); ok {
			o = result
		}
		a.events = append(a.events, o)
		a.code, a.action = codeOf(o)
	}
	return a
}

// codeOf is Semel's code in an error, and what to do next.
func codeOf(o object) (string, store.Action) {
	failure, _ := o["error"].(object)
	if failure == nil {
		return "", ""
	}
	details, _ := failure["data"].([]any)
	if details == nil {
		details, _ = failure["details"].([]any)
	}
	for _, d := range details {
		if code, ok := member(d.(object), "metadata", "code").(string); ok {
			action, _ := member(d.(object), "metadata", "action").(string)
			return code, store.Action(action)
		}
	}
	return fmt.Sprint(failure["code"]), ""
}

// five sends the same message five times at once.
func (w *world) five(b binding, id, text string, stream bool) (answers [5]*answer) {
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = w.send(b, id, "", text, stream) })
	}
	all.Wait()
	return answers
}
