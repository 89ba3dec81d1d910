package agents

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/sse"
)

// counter is a reverse proxy before a server, which counts the tool calls that it carries out.
type counter struct {
	*httputil.ReverseProxy
	mu    sync.Mutex
	tools map[string]int // how often it carried out which
	keys  map[string]int // and by the key in _meta
}

// carried is the call that a request makes.
type carried struct{ tool, key string }

func newCounter(upstream *url.URL) *counter {
	c := &counter{}
	c.take()
	c.ReverseProxy = &httputil.ReverseProxy{
		FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		ModifyResponse: func(resp *http.Response) error {
			call, ok := resp.Request.Context().Value(carried{}).(carried)
			c.mu.Lock()
			defer c.mu.Unlock()
			if ok && resp.StatusCode != http.StatusBadRequest { // by which the server says that it did nothing
				c.tools[call.tool]++
				c.keys[call.key]++
			}
			return nil
		},
	}
	return c
}

// ServeHTTP passes on a request.
func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	if calls(raw) {
		var call carried
		params := jsonscan.Member(raw, "params")
		call.tool, _ = jsonscan.Text(jsonscan.Member(params, "name"))
		call.key, _ = jsonscan.Text(jsonscan.Member(jsonscan.Member(params, "_meta"), keyMember))
		r = r.WithContext(context.WithValue(r.Context(), carried{}, call))
	}
	c.ReverseProxy.ServeHTTP(w, r)
}

// take returns what was counted since it was called last.
func (c *counter) take() (tools, keys map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tools, keys = c.tools, c.keys
	c.tools, c.keys = map[string]int{}, map[string]int{}
	return tools, keys
}

const keyMember = "idempotency-key"

// calls reports whether a message calls a tool.
func calls(raw []byte) bool {
	method, _ := jsonscan.Text(jsonscan.Member(raw, "method"))
	return json.Valid(raw) && method == "tools/call"
}

// twice is a shim before a gateway that sends every request twice at once, under two ids and with
// one key in the _meta of both. Its client gets the answer that begins first.
type twice struct {
	t       *testing.T
	to      *url.URL
	client  http.Transport
	count   atomic.Int64
	pending sync.RWMutex // held while an answer is outstanding
}

// ServeHTTP sends a request twice.
func (s *twice) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if r.Method == http.MethodDelete { // the session of calls that are under way, perhaps
		s.pending.Lock()
		defer s.pending.Unlock()
	}
	id := jsonscan.Member(raw, "id")
	if !json.Valid(raw) || jsonscan.Member(raw, "method") == nil || id == nil {
		resp, err := s.client.RoundTrip(s.copy(r.Context(), r, raw))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		relay(w, resp, io.Discard, nil, nil)
		return
	}
	raw = keyed(raw)
	own := fmt.Appendf(nil, `"second-%d"`, s.count.Add(1))
	at := jsonscan.Offset(raw, jsonscan.Member(raw, "id"))
	id = bytes.Clone(jsonscan.Member(raw, "id"))
	second := slices.Concat(raw[:at], own, raw[at+len(id):])
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	answers := make(chan *http.Response)
	for _, text := range [][]byte{raw, second} {
		go func() {
			resp, err := s.client.RoundTrip(s.copy(ctx, r, text))
			if err != nil {
				resp = nil
			}
			answers <- resp
		}()
	}
	s.pending.RLock()
	first := <-answers
	mine := make(chan []byte, 1)
	go func() {
		defer s.pending.RUnlock()
		defer cancel()
		other := bytes.ReplaceAll(drain(<-answers), own, id)
		if one := <-mine; calls(raw) && !resumed(raw) && !same(one, other) && ctx.Err() == nil {
			s.t.Errorf("two answers to one call:\n%s\n%s", one, other)
		}
	}()
	defer context.AfterFunc(r.Context(), cancel)() // a client that leaves ends both
	var text bytes.Buffer
	defer func() { mine <- text.Bytes() }()
	if first == nil {
		panic(http.ErrAbortHandler)
	}
	relay(w, first, &text, own, id)
}

// copy is a request as it goes to the gateway.
func (s *twice) copy(ctx context.Context, r *http.Request, raw []byte) *http.Request {
	out := r.Clone(ctx)
	out.RequestURI, out.Body, out.ContentLength = "", io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	out.URL.Scheme, out.URL.Host = s.to.Scheme, s.to.Host
	return out
}

// relay passes on an answer as its lines come, with an id in place of another.
func relay(w http.ResponseWriter, from *http.Response, text io.Writer, old, id []byte) {
	defer from.Body.Close()
	maps.Copy(w.Header(), from.Header)
	w.Header().Del("Content-Length")
	w.WriteHeader(from.StatusCode)
	out := http.NewResponseController(w)
	_ = out.Flush()
	for body := bufio.NewReader(from.Body); ; {
		line, err := body.ReadBytes('\n')
		if old != nil {
			line = bytes.ReplaceAll(line, old, id)
		}
		_, _ = w.Write(line) // a client who is gone has no answer
		_, _ = text.Write(line)
		_ = out.Flush()
		if err != nil {
			return
		}
	}
}

// resumed reports whether a message calls the tool that ends its stream early; see later.
func resumed(raw []byte) bool {
	name, _ := jsonscan.Text(jsonscan.Member(jsonscan.Member(raw, "params"), "name"))
	return name == "test_reconnection"
}

func drain(resp *http.Response) []byte {
	if resp == nil {
		return nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return text
}

// keyed is a request with a key that no other has.
func keyed(raw []byte) []byte {
	var m map[string]json.RawMessage
	var params map[string]json.RawMessage
	meta := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &m) != nil || json.Unmarshal(m["params"], &params) != nil || params == nil {
		return raw
	}
	if said, ok := params["_meta"]; ok && (json.Unmarshal(said, &meta) != nil || meta == nil) {
		return raw
	}
	meta[keyMember], _ = json.Marshal(rand.Text())
	params["_meta"], _ = json.Marshal(meta)
	m["params"], _ = json.Marshal(params)
	raw, _ = json.Marshal(m)
	return raw
}

// same reports whether two answers have the same response but for what a replay says of itself.
func same(one, other []byte) bool { return reflect.DeepEqual(response(one), response(other)) }

// response is the response in an answer, of JSON or of a stream.
func response(text []byte) any {
	var m map[string]any
	if json.Unmarshal(text, &m) != nil {
		for event := range strings.SplitSeq(strings.ReplaceAll(string(text), "\r", ""), "\n\n") {
			var e map[string]any
			if json.Unmarshal(sse.Data([]byte(event+"\n\n")), &e) == nil && (e["result"] != nil || e["error"] != nil) {
				m = e
			}
		}
	}
	if result, ok := m["result"].(map[string]any); ok {
		if meta, ok := result["_meta"].(map[string]any); ok {
			delete(meta, "io.github.semelhq/replayed")
			delete(meta, "io.github.semelhq/stream")
			if len(meta) == 0 {
				delete(result, "_meta")
			}
		}
	}
	return m
}
