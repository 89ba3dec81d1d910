package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/store"
)

// TestOnce: five calls under one key at once, and one later, run once; each gets the result
// under the id that it asked under, and the first as the server spelled it.
func TestOnce(t *testing.T) {
	for _, v := range all {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream %t", v, stream), func(t *testing.T) {
				w := open(t, mcp.GatewayOptions{})
				w.stream = stream
				var five sync.WaitGroup
				var answers [5]*answer
				for i := range answers {
					five.Go(func() { answers[i] = w.keyed(v, "pay", "k-1", `{"order":1}`) })
				}
				five.Wait()
				replays := 0
				for _, a := range append(answers[:], w.keyed(v, "pay", "k-1", ` { "order" : 1.0 } `)) {
					if a.said() != "run 1" {
						t.Errorf("%d %s", a.status, a.text)
					}
					if a.replayed() {
						replays++
					} else if want := `"result":{"content": [{"type":"text","text":"run 1"}], "isError": false}`; !strings.Contains(a.text, want) || a.result["_meta"] != nil {
						t.Errorf("the first got %s", a.text)
					}
				}
				if w.runs.Load() != 1 || replays != 5 {
					t.Errorf("%d runs, %d replays", w.runs.Load(), replays)
				}
			})
		}
	}
	t.Run("a client that takes only streams", func(t *testing.T) {
		w := open(t, mcp.GatewayOptions{})
		w.keyed(modern, "pay", "k-1", `{}`)
		id, raw := modern.body("tools/call", `"name":"pay","arguments":{}`, `"idempotency-key":"k-1"`)
		got := w.post(modern, raw, "Mcp-Name", "pay", "Accept", "text/event-stream")
		if got.events != 1 || got.id != id || got.said() != "run 1" {
			t.Errorf("%s", got.text)
		}
	})
}

// TestKeys: where a key may be, and that the place isn't part of what is compared.
func TestKeys(t *testing.T) {
	for _, c := range []struct{ arguments, more, meta, header string }{
		{`{"a":1}`, "", `"idempotency-key":"k-1"`, ""},
		{`{"a":1}`, "", `"idempotency_key":"k-1"`, ""},
		{`{"a":1}`, "", `"idempotencyKey":"k-1"`, ""},
		{`{"a":1}`, "", `"x402/idempotency-key":"k-1"`, ""},
		{`{"a":1}`, `"meta":{"idempotency-key":"k-1"}`, "", ""},
		{`{"a":1}`, `"meta":{"idempotency_key":"k-1"}`, "", ""},
		{`{"a":1}`, `"idempotencyKey":"k-1"`, "", ""},
		{`{"a":1,"idempotency_key":"k-1"}`, "", "", ""},
		{`{"token":"k-1","a":1}`, "", "", ""},
		{`{"a":1}`, "", "", `"k-1"`},
		{`{"a":1}`, "", "", `k-1`},
		{`{"a":1}`, `"idempotencyKey":"k-1"`, `"idempotency-key":"k-1"`, "k-1"},
	} {
		w := open(t, mcp.GatewayOptions{Tools: map[string]mcp.Tool{"pay": {KeyParameter: "token"}}})
		w.keyed(modern, "pay", "k-1", `{"a":1}`)
		_, got := w.call(modern, "pay", c.arguments, c.more, c.meta, "Idempotency-Key", c.header)
		if got.said() != "run 1" || !got.replayed() || w.runs.Load() != 1 {
			t.Errorf("%+v: %s", c, got.text)
		}
	}
}

// TestIdentity: what makes two calls one, and what keeps them apart.
func TestIdentity(t *testing.T) {
	for _, c := range []struct {
		name       string
		tool       string
		arguments  string
		more, meta string
		caller     string
		runs       int64
		code       string
	}{
		{"another id, trace and progress", "pay", `{"a":1,"b":"x"}`, "", `"traceparent":"00-1","progressToken":7`, "", 1, ""},
		{"another order of members", "pay", `{"b":"\u0078","a":1e0}`, "", "", "", 1, ""},
		{"other arguments", "pay", `{"a":2,"b":"x"}`, "", "", "", 1, "conflict"},
		{"another tool", "refund", `{"a":1,"b":"x"}`, "", "", "", 1, "conflict"},
		{"another caller", "pay", `{"a":1,"b":"x"}`, "", "", "eve", 2, ""},
		{"a round", "pay", `{"a":1,"b":"x"}`, `"requestState":"s","inputResponses":{"q":{"action":"accept"}}`, "", "", 2, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t, mcp.GatewayOptions{})
			first := w.keyed(modern, "pay", "k-1", `{"a":1,"b":"x"}`)
			meta := strings.TrimSuffix(`"idempotency-key":"k-1",`+c.meta, ",")
			_, second := w.call(modern, c.tool, c.arguments, c.more, meta, semelhttptest.CallerHeader, c.caller)
			if first.said() != "run 1" || second.code != c.code || w.runs.Load() != c.runs {
				t.Errorf("%d runs: %s", w.runs.Load(), second.text)
			}
			if c.code != "" && (second.result["isError"] != true || member(second.result, "structuredContent", "action") != "new_key" || second.id == first.id) {
				t.Errorf("%s", second.text)
			}
		})
	}
	t.Run("rounds are compared by their answers", func(t *testing.T) {
		w := open(t, mcp.GatewayOptions{})
		round := func(state, answers string) *answer {
			_, a := w.call(modern, "pay", `{"a":1}`, fmt.Sprintf(`"requestState":%q,"inputResponses":%s`, state, answers), `"idempotency-key":"k-1"`)
			return a
		}
		for i, c := range [][3]string{{"s", `{"q":1}`, "run 1"}, {"s", `{"q":1.0}`, "run 1"}, {"t", `{"q":2}`, "run 2"}, {"u", `{"q":1}`, "run 3"}} {
			if got := round(c[0], c[1]); got.said() != c[2] {
				t.Errorf("%d: %s", i, got.text)
			}
		}
	})
}

// TestFields: a call is known by the arguments that its tool declares, whatever its client.
func TestFields(t *testing.T) {
	tools := map[string]mcp.Tool{"refund": {Fields: []string{"/order_id", "/items/0/sku"}}}
	w := open(t, mcp.GatewayOptions{Tools: tools})
	call := func(arguments string, header ...string) *answer {
		id, a := w.call(modern, "refund", arguments, "", "", header...)
		if a.id != id {
			t.Errorf("asked under %s: %s", id, a.text)
		}
		return a
	}
	for _, c := range []struct {
		arguments, caller, said, code string
		rpc                           int
	}{
		{`{"order_id":"o-1","items":[{"sku":"a"}]}`, "", "run 1", "", 0},
		{`{"items":[{"sku":"a"}],"order_id":"o-1"}`, "", "run 1", "", 0},
		{`{"order_id":"o-1","items":[{"sku":"a"}]}`, "eve", "run 2", "", 0},
		{`{"order_id":"o-2","items":[{"sku":"a"}]}`, "", "run 3", "", 0},
		{`{"order_id":2,"items":[{"sku":"a"}]}`, "", "run 4", "", 0},
		{`{"order_id":"2","items":[{"sku":"a"}]}`, "", "run 5", "", 0},
		{`{"order_id":"o-1","items":[{"sku":"a"}],"why":"x"}`, "", "", "conflict", 0},
		{`{"order_id":"o-1","items":[]}`, "", "", "invalid_call", -32602},
		{`{"order_id":null,"items":[{"sku":"a"}]}`, "", "", "invalid_call", -32602},
	} {
		got := call(c.arguments, semelhttptest.CallerHeader, c.caller)
		if c.code != "" && got.code != c.code || c.code == "" && got.said() != c.said || got.rpc != c.rpc {
			t.Errorf("%s by %q: %s", c.arguments, c.caller, got.text)
		}
	}
	page, err := w.Engine.Search(t.Context(), store.Query{Attributes: map[string]string{"tool": "refund"}})
	if err != nil || len(page.Records) != 5 {
		t.Errorf("%d records of the tool, %v", len(page.Records), err)
	}
	for _, wrong := range []mcp.Tool{{Fields: []string{"order_id"}}, {Fields: []string{""}}, {Operation: semel.Operation{Name: "reads", Class: semel.ReadOnly}}, {Operation: semel.Operation{Name: "steps", Confirmation: &semel.ConfirmationPolicy{StepUp: func(context.Context, semel.Call) error { return nil }}}}, {Operation: semel.Operation{Name: operation.Name, Financial: true}}} {
		opts := mcp.GatewayOptions{Operation: operation, Upstream: w.request(modern, "").URL, Tools: map[string]mcp.Tool{"refund": wrong}}
		if _, err := mcp.NewGateway(w.Guard, opts); err == nil || !strings.Contains(err.Error(), "refund") {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// TestUnverifiedCallers: where nobody verified them, two callers with the same declared fields are
// two, because both can know those; with a key that nobody can guess, the second gets nothing.
func TestUnverifiedCallers(t *testing.T) {
	w := open(t, mcp.GatewayOptions{})
	guard, err := semelhttp.New(w.Engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := mcp.NewGateway(guard, mcp.GatewayOptions{Operation: operation, Upstream: urlOf(t, listen(t, w.server)), Tools: map[string]mcp.Tool{"refund": {Fields: []string{"/order_id"}}}})
	if err != nil {
		t.Fatal(err)
	}
	w.url = listen(t, g)
	call := func(tool, meta, who string) *answer {
		_, a := w.call(modern, tool, `{"order_id":"o-1"}`, "", meta, "Authorization", "Bearer "+who)
		return a
	}
	const key = `"idempotency-key":"7d8f6e0c-1b2a-4c3d-9e8f-0a1b2c3d4e5f"`
	for i, c := range []struct{ tool, meta, who, said, code string }{
		{"refund", "", "ann", "run 1", ""},
		{"refund", "", "eve", "run 2", ""},
		{"refund", "", "ann", "run 1", ""},
		{"pay", key, "ann", "run 3", ""},
		{"pay", key, "eve", "", "other_caller"},
		{"search", "", "ann", "run 4", ""},
		{"search", "", "eve", "run 5", ""},
		{"search", "", "ann", "run 4", ""}, // nobody sees what becomes of answers here
	} {
		if got := call(c.tool, c.meta, c.who); got.code != c.code || c.code == "" && got.said() != c.said {
			t.Errorf("%d: %s", i, got.text)
		}
	}
	if got := w.post(modern, `{`, "X-Forwarded-For", "1.2.3.4"); got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") == "" || got.rpc != -32600 {
		t.Errorf("without a credential: %d %s", got.status, got.text)
	}
}

// TestJoin: a call goes on when its client leaves, and whoever asks again while it runs gets its
// result, also on another gateway.
func TestJoin(t *testing.T) {
	for _, stream := range []bool{false, true} {
		w, release := open(t, mcp.GatewayOptions{}), make(chan struct{})
		w.answer = func(rw http.ResponseWriter, r *http.Request, id string, _ object) {
			if stream {
				rw.Header().Set("Content-Type", "text/event-stream")
				_, _ = rw.Write([]byte(": working\n\n"))
				_ = http.NewResponseController(rw).Flush()
			}
			select {
			case <-release:
			case <-r.Context().Done():
				t.Error("the call was cancelled")
			}
			text := `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"slow"}]}}`
			if stream {
				text = "data: " + text + "\n\n"
			}
			_, _ = rw.Write([]byte(text))
		}
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, raw := modern.body("tools/call", `"name":"pay","arguments":{}`, `"idempotency-key":"k-1"`)
			if resp, err := w.client.Do(w.request(modern, raw, "Mcp-Name", "pay").WithContext(ctx)); err == nil {
				resp.Body.Close()
			}
		}()
		<-w.began
		leave()
		<-gone
		other, err := mcp.NewGateway(w.Guard, mcp.GatewayOptions{Operation: operation, Upstream: w.request(modern, "").URL})
		if err != nil {
			t.Fatal(err)
		}
		second := *w
		second.url = listen(t, other)
		var two sync.WaitGroup
		for _, at := range []*world{w, &second} {
			two.Go(func() {
				if got := at.keyed(modern, "pay", "k-1", `{}`); got.said() != "slow" || !got.replayed() {
					t.Errorf("stream %t: %s", stream, got.text)
				}
			})
		}
		close(release)
		two.Wait()
		if w.runs.Load() != 1 {
			t.Errorf("%d runs", w.runs.Load())
		}
	}
}

// TestReadOnly: calls of tools that only read pass, if somebody who may say so does.
func TestReadOnly(t *testing.T) {
	for _, c := range []struct {
		opts   mcp.GatewayOptions
		passes bool
	}{
		{mcp.GatewayOptions{}, false},
		{mcp.GatewayOptions{TrustHints: true}, true},
		{mcp.GatewayOptions{TrustHints: true, Tools: map[string]mcp.Tool{"search": {}}}, false},
		{mcp.GatewayOptions{Tools: map[string]mcp.Tool{"search": {ReadOnly: true}}}, true},
	} {
		w := open(t, c.opts)
		w.post(middle, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		w.keyed(modern, "search", "k-1", `{}`)
		if again := w.keyed(modern, "search", "k-1", `{}`); c.passes != (again.said() == "run 2") {
			t.Errorf("%+v: %s", c.opts, again.text)
		}
	}
}

// TestRecordedForm: what a program has recorded, later ones read. These bytes only ever get others
// beside them.
func TestRecordedForm(t *testing.T) {
	for _, c := range []struct{ answer, recorded string }{
		{`{"jsonrpc":"2.0","id":ID,"result": {"content": [], "n":1.0} }`, `{"mcp":1,"result":{"content": [], "n":1.0}}`},
		{`{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no"}}`, `{"mcp":1,"error":{"code":-32602,"message":"no"}}`},
		{"id: 1\nevent: message\ndata: {\"result\": {},\"jsonrpc\":\"2.0\",\"id\":ID}\n\n", `{"mcp":2,"stream":"AQpn9IWswJx1HR963DGDU3ifY/vTFoIiulPdPaxpJ+WlIA==","fields":"id: 1\nevent: message\n","response":{"result": {},"jsonrpc":"2.0","id":ID}}`},
		{`STATUS400`, `{"mcp":1,"status":400,"error":{"code":-32600,"message":"The server refused the call with the status 400."}}`},
	} {
		w := open(t, mcp.GatewayOptions{})
		w.answer = func(rw http.ResponseWriter, _ *http.Request, id string, _ object) {
			if c.answer == "STATUS400" {
				rw.WriteHeader(http.StatusBadRequest)
				return
			}
			if strings.HasPrefix(c.answer, "id: ") {
				rw.Header().Set("Content-Type", "text/event-stream")
			}
			_, _ = rw.Write([]byte(strings.ReplaceAll(c.answer, "ID", id)))
		}
		id, _ := w.call(modern, "pay", `{"a":1}`, "", `"idempotency-key":"k-1"`)
		page, err := w.Engine.Search(t.Context(), store.Query{Operation: operation.Name})
		if err != nil || len(page.Records) != 1 || string(page.Records[0].Result.Data) != strings.ReplaceAll(c.recorded, "ID", id) {
			t.Errorf("%+v, %v", page.Records, err)
		}
	}
	asking := behind(t, asks(func(int64) string { return "s" }), mcp.GatewayOptions{})
	for _, more := range []string{"", `"requestState":"s","inputResponses":{}`} {
		asking.call(modern, "pay", `{"a":1}`, more, `"idempotency-key":"k-1"`)
	}
	cells, err := asking.Engine.Search(t.Context(), store.Query{Operation: "semel.mcp.state"})
	if err != nil || len(cells.Records) != 1 {
		t.Fatalf("%+v, %v", cells.Records, err)
	}
	const cell = "5d5a0fce6a0e9e8d192b67c718c0e8dc9808e2b678d80824c5cf2bb22ae8c2a3 " + `{"mcp":1,"given":1,"rounds":[{"call":"db7e18147b8dc08ce979b208abc693ccc58d42fb1f560f93ec7d4e9fb859dda8"}]}`
	if rec := cells.Records[0]; rec.ID.Key+" "+string(rec.Result.Data) != cell {
		t.Errorf("%s %s", rec.ID.Key, rec.Result.Data)
	}
	w := open(t, mcp.GatewayOptions{Tools: map[string]mcp.Tool{"refund": {Fields: []string{"/order_id", "/amount"}}}})
	w.keyed(modern, "pay", "k-1", `{"a":1}`)
	w.call(modern, "refund", `{"order_id":"o-1","amount":42}`, "", "")
	page, err := w.Engine.Search(t.Context(), store.Query{Operation: operation.Name})
	if err != nil || len(page.Records) != 2 {
		t.Fatalf("%+v, %v", page.Records, err)
	}
	// The key of declared fields, and what payloads are compared by.
	want := map[string]string{
		"2392cd917e3330acd19b2f260c30166cd59dfa44a8a4edeadcf43ea8a7a81974": "2:c6a3bd2ff697de53f36ec77bca81c0d0049d436a3da3585c83182d9c2c687cc1",
		"k-1": "2:6dbd7922b9bc3201aea0d15c864a2c05d8c1a48315ce39ebb213bf2f46ac602c",
	}
	for _, rec := range page.Records {
		if rec.Fingerprint.String() != want[rec.ID.Key] {
			t.Errorf("%q: %q", rec.ID.Key, rec.Fingerprint)
		}
	}
}

// TestRemembered: a call that is known for longer than its result doesn't run again, and its caller
// learns how it ended.
func TestRemembered(t *testing.T) {
	for name, c := range map[string]struct{ answer, outcome, ended string }{
		"done":    {`"result":{"content":[]}`, "done", "(completed)"},
		"failed":  {`"result":{"content":[],"isError":true}`, "failed", "(failed)"},
		"refused": {`"error":{"code":-32602,"message":"no such order"}`, "not_run", "(rejected)"},
	} {
		t.Run(name, func(t *testing.T) {
			op := semel.Operation{Name: "known", Window: time.Hour, Remember: 24 * time.Hour, OnFailure: semel.ReplayFailure}
			w := open(t, mcp.GatewayOptions{Operation: op})
			w.answer = func(rw http.ResponseWriter, _ *http.Request, id string, _ object) {
				rw.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,%s}`, id, c.answer)
			}
			w.keyed(modern, "refund", "k-1", `{}`)
			w.Store.Advance(2 * time.Hour)
			for _, swept := range []bool{false, true} {
				if swept {
					if n, err := w.Engine.Sweep(t.Context()); err != nil || n.Forgotten != 1 {
						t.Fatal(n, err)
					}
				}
				got := w.keyed(modern, "refund", "k-1", `{}`)
				facts := member(got.result, "_meta", "io.github.semelhq/refusal")
				if got.code != "result_not_kept" || member(facts, "outcome") != c.outcome || member(facts, "action") != "verify" || !strings.Contains(got.said(), c.ended) || !strings.Contains(got.said(), "kept until") {
					t.Errorf("swept %t: %s", swept, got.text)
				}
			}
			if w.runs.Load() != 1 {
				t.Errorf("%d runs", w.runs.Load())
			}
			w.Advance(24 * time.Hour)
			if w.keyed(modern, "refund", "k-1", `{}`); w.runs.Load() != 2 {
				t.Errorf("%d runs after it was forgotten", w.runs.Load())
			}
		})
	}
}

// TestReusedIDs: an id names a request to its client, and no call: clients that reuse one get an
// answer for each call, and large arguments don't change that.
func TestReusedIDs(t *testing.T) {
	w := open(t, mcp.GatewayOptions{MaxBody: 16 << 20})
	w.answer = func(rw http.ResponseWriter, r *http.Request, id string, params object) {
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%.6s"}]}}`, id, member(params, "arguments", "text"))
	}
	long := strings.Repeat("x", 10<<20)
	for _, id := range []string{`1`, `"1"`, `-9223372036854775808`, `123456789012345678901234567890`, `""`} {
		if id != `1` {
			long = ""
		}
		var beside sync.WaitGroup
		for i := range 4 { // two calls, each twice
			beside.Go(func() {
				key, text := fmt.Sprintf("k-%s-%d", id, i%2), fmt.Sprintf("call %d %s", i%2, long)
				raw := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"pay","arguments":{"text":%q},"_meta":{"idempotency-key":%q}}}`, id, text, key)
				if got := w.post(middle, raw); got.id != id || got.said() != fmt.Sprintf("call %d", i%2) {
					t.Errorf("%s: %.300s", id, got.text)
				}
			})
		}
		beside.Wait()
	}
	if n := w.runs.Load(); n != 10 {
		t.Errorf("%d runs", n)
	}
}

// TestReplayReadsItsOutcomeOnce: what a replay takes in memory grows with one reading of the recorded
// result, however many questions are asked of it.
func TestReplayReadsItsOutcomeOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("with -short tests run under the race detector, where pools keep less")
	}
	const size = 1 << 17
	w := open(t, mcp.GatewayOptions{})
	w.answer = func(rw http.ResponseWriter, _ *http.Request, id string, _ object) {
		fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":[%s1]}}`, id, strings.Repeat("1,", size/2))
	}
	_, raw := middle.body("tools/call", `"name":"pay"`, `"idempotency-key":"k-1"`)
	once := func() (took uint64) {
		rw := httptest.NewRecorder()
		rw.Body.Grow(2 * size)
		r := w.request(middle, raw)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w.gateway.ServeHTTP(rw, r)
		runtime.ReadMemStats(&after)
		if rw.Code != http.StatusOK || rw.Body.Len() < size {
			t.Fatalf("%d %.700s", rw.Code, rw.Body)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	once()
	took := once()
	for range 20 { // what runs beside it allocates, too, and pools lose something now and then
		took = min(took, once())
	}
	t.Logf("%.1f times the result", float64(took)/size)
	if took > 13*size/2 {
		t.Errorf("%d bytes for a result of %d", took, size)
	}
}
