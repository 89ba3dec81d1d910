package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/shield"
	"github.com/semelhq/semel/store/memstore"
)

// program is who does the work behind all doors. It answers by what the test has set, and
// counts how often it was asked. Its answers have the Semel-Effect of the request, if it
// gets that: all senders say that nothing was done, and no door may believe them.
type program struct {
	hits   atomic.Int64
	answer atomic.Pointer[http.HandlerFunc]
}

func (p *program) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.hits.Add(1)
	if said, ok := r.Header["Semel-Effect"]; ok {
		w.Header()["Semel-Effect"] = said
	}
	(*p.answer.Load())(w, r)
}

func (p *program) says(h http.HandlerFunc) { p.answer.Store(&h) }

// saying answers with a status and headers, and a body where there may be one.
func saying(status int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		if status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified {
			fmt.Fprint(w, "said")
		}
	}
}

// raw writes text to the connection and closes it.
func raw(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		fmt.Fprint(c, text)
		if text == "" {
			_ = c.(*net.TCPConn).SetLinger(0) // a reset
		}
		c.Close()
	}
}

// silence never answers. Once the body is read, the server notices that the other side has
// gone.
func silence(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// entrance is a way for calls to reach the program.
type entrance struct {
	name string
	// deliver brings a call once, and returns what the sender got.
	deliver func(t *testing.T, call string) (status int, header http.Header)
	// verdict is what the door makes of the table's.
	verdict func(status int, v judge.Verdict) judge.Verdict
	// runs is whether the next delivery asks the program again.
	runs func(v judge.Verdict) bool
	// statusOnly: the body of an answer that says that the work was done means nothing.
	statusOnly bool
	// own: the program is the handler itself, and nothing can break off. money: its work
	// moves money.
	own, money bool
	// words: the door answers in words of its own.
	words bool
}

func same(_ int, v judge.Verdict) judge.Verdict { return v }

// unproved makes redirects, and what else a door doesn't take for a result, unknown.
func unproved(also ...judge.Verdict) func(int, judge.Verdict) judge.Verdict {
	return func(status int, v judge.Verdict) judge.Verdict {
		if slices.Contains(also, v) {
			return judge.Unknown
		}
		if redirects(status) || status == http.StatusConflict {
			return judge.Unknown
		}
		return v
	}
}

// commanded is what the door of commands makes of the table.
func commanded(status int, v judge.Verdict) judge.Verdict {
	if redirects(status) {
		return judge.Unknown
	}
	return v
}

// redirects reports whether an answer is no result for somebody who doesn't follow it.
func redirects(status int) bool {
	return status >= 300 && status < 400 && status != 307 && status != 308
}

func again(verdicts ...judge.Verdict) func(judge.Verdict) bool {
	return func(v judge.Verdict) bool {
		return slices.Contains(verdicts, v)
	}
}

// doorsTo opens every door to the program at a URL, which may take that long.
func doorsTo(t *testing.T, upstream string, p *program, timeout time.Duration) []entrance {
	t.Helper()
	return doorsWith(t, upstream, p, timeout, judge.Answers{}, "")
}

// doorsWith is doorsTo with what the program's answers mean, at the doors that can be told, and
// with a setting of all operations.
func doorsWith(t *testing.T, upstream string, p *program, timeout time.Duration, answers judge.Answers, policy string) []entrance {
	t.Helper()
	setting := ""
	if answers.Any() {
		text, err := json.Marshal(answers)
		if err != nil {
			t.Fatal(err)
		}
		setting = ", answers: " + string(text)
	}
	const secret = "a webhook's secret"
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	token, sum := auth.NewToken()
	s := start(t, write(t, strings.NewReplacer("UP", upstream, "TIMEOUT", timeout.String()+setting, "BARE", timeout.String(), "ARCHIVE", dir, "SUM", sum, "POLICY", policy,
		"NAMED", timeout.String()+", answers: {not_executed: [503, 504], unknown: [500, 403], final: [419]}",
		"SECRET", file("secret", secret), "KEYS", file("evidence.key", string(keys.Text())),
		"REGISTRY", file("commands.yaml", strings.NewReplacer("UP", upstream, "TIMEOUT", timeout.String()+setting, "POLICY", policy).Replace(`
version: 1
commands:
  - {entity: order, action: pay, rights: {execute: [pay]}, handler: {url: UP, timeout: TIMEOUT}POLICY}
  - {entity: card, action: pay, class: I3, shields: [{strategy: S1, header: X-Charge}], rights: {execute: [pay]}, handler: {url: UP, timeout: TIMEOUT}POLICY}
`))).Replace(`
store: {url: "memory:"}
auth: {default_tenant: acme, tokens: [{name: alice, tenant: acme, sha256: SUM, rights: [pay]}]}
archive: {dir: ARCHIVE}
commerce: {path: /commerce, charge_url: UP, timeout: BARE}
limits: {shutdown_grace: 1s}
operations: [{name: chargePOLICY}, {name: money, financial: true, archive: falsePOLICY}, {name: namedPOLICY}, {name: functionsPOLICY}, {name: messagesPOLICY}, {name: toolsPOLICY}]
routes:
  - {match: POST /charges, upstream: UP, operation: charge, timeout: TIMEOUT}
  - {match: POST /money, upstream: UP, operation: money, timeout: TIMEOUT, effect_header: X-Effect}
  - {match: POST /named, upstream: UP, operation: named, timeout: NAMED}
forrst: [{path: /forrst, upstream: UP, timeout: TIMEOUT, functions: [{name: pay, versions: [1.0.0], operation: functions}]}]
a2a: [{path: /agent, upstream: UP, operation: messages, timeout: TIMEOUT}]
mcp: [{path: /mcp, upstream: UP, operation: tools, timeout: TIMEOUT}]
webhooks: [{path: /hooks, source: github, secret_files: [SECRET], upstream: UP, mode: sync, timeout: TIMEOUTPOLICY}]
commands: {registry: REGISTRY}
evidence: {key_file: KEYS}
`)))
	always := []string{"Authorization", "Bearer " + token, "Semel-Effect", "none"}
	post := func(t *testing.T, path, body string, header ...string) (int, http.Header) {
		status, h, _ := do(t, http.MethodPost, s.data(path), body, append(header, always...)...)
		return status, h
	}
	route := func(path string) func(*testing.T, string) (int, http.Header) {
		return func(t *testing.T, call string) (int, http.Header) {
			return post(t, path, "{}", "Idempotency-Key", call)
		}
	}
	command := func(entity string) func(*testing.T, string) (int, http.Header) {
		return func(t *testing.T, call string) (int, http.Header) {
			return post(t, "/v1/commands", `{"tenant_id":"acme","actor_id":"alice","intent":{"entity":"`+entity+`","action":"pay","target":"`+call+`"}}`)
		}
	}
	engine, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{{Name: "shielded", Effects: []string{"pay"}}}})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	own := guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "own"}, Anonymous: semelhttp.AnonymousShare, Answers: answers}, p)
	ownMoney := guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "own.money", Financial: true, OnExpiry: semel.DeleteExpired}, Anonymous: semelhttp.AnonymousShare, Answers: answers}, p)
	target, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := semelproxy.New(guard, semelproxy.Options{Upstream: target, Route: semelhttp.Route{
		Operation: semel.Operation{Name: "proxied", Effects: []string{}}, Anonymous: semelhttp.AnonymousShare, Timeout: timeout, Answers: answers,
	}})
	if err != nil {
		t.Fatal(err)
	}
	proxied := httptest.NewServer(proxy)
	t.Cleanup(func() {
		proxied.Close()
		proxy.Close()
	})
	handled := func(h http.Handler) func(*testing.T, string) (int, http.Header) {
		return func(t *testing.T, call string) (int, http.Header) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader("{}"))
			r.Header.Set("Idempotency-Key", call)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code, w.Header()
		}
	}
	sender, err := dispatch.HTTP(dispatch.HTTPOptions{URL: upstream, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	retried := again(judge.Aborted, judge.Failed)
	return []entrance{
		{name: "a route", deliver: route("/charges"), verdict: same, runs: retried},
		{name: "a financial route with an effect header", money: true, deliver: route("/money"), verdict: same, runs: again(judge.Aborted)},
		{name: "a route that names statuses", deliver: route("/named"), verdict: func(status int, v judge.Verdict) judge.Verdict {
			switch status {
			case 503, 504:
				return judge.Aborted
			case 500, 403:
				return judge.Unknown
			case 419:
				return judge.Rejected
			}
			return v
		}, runs: retried},
		{name: "the proxy with a ledger", deliver: func(t *testing.T, call string) (int, http.Header) {
			status, header, _ := do(t, http.MethodPost, proxied.URL+"/charges", "{}", "Idempotency-Key", call, "Semel-Effect", "none")
			return status, header
		}, verdict: same, runs: retried},
		{name: "a handler of this process", own: true, deliver: handled(own), verdict: same, runs: retried},
		{name: "a financial handler of this process", own: true, money: true, deliver: handled(ownMoney), verdict: same, runs: again(judge.Aborted)},
		{name: "a webhook that is synchronous", statusOnly: true, deliver: func(t *testing.T, call string) (int, http.Header) {
			return post(t, "/hooks", "{}", signedAs(t, "github", secret, "{}", "X-GitHub-Delivery", call, "X-GitHub-Event", "push")...)
		}, verdict: unproved(), runs: again(judge.Aborted, judge.Failed, judge.Rejected)}, // the sender delivers until it is taken
		{name: "a command with a URL", words: true, deliver: command("order"), verdict: commanded, runs: again(judge.Aborted)},
		{name: "a command with a provider's key", words: true, deliver: command("card"), verdict: commanded, runs: again(judge.Aborted)},
		{name: "a function of Forrst", words: true, deliver: func(t *testing.T, call string) (int, http.Header) {
			return post(t, "/forrst", `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r","call":{"function":"pay","version":"1.0.0","arguments":{}},"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"`+call+`"}}]}`)
		}, verdict: func(status int, v judge.Verdict) judge.Verdict { // none of this is Forrst's
			switch {
			case v == judge.Rejected && status != 403:
				return judge.Aborted
			case v == judge.Completed || v == judge.Failed:
				return judge.Unknown
			}
			return v
		}, runs: again(judge.Aborted)},
		{name: "a payment of commerce", money: true, words: true, deliver: func(t *testing.T, call string) (int, http.Header) {
			return post(t, "/commerce/payments", fmt.Sprintf(`{"order":%q,"amount":1,"currency":"USD","intent_at":%d}`, call, time.Now().Unix()/3600*3600))
		}, verdict: unproved(judge.Completed), runs: again(judge.Aborted)}, // an answer without a transaction proves nothing
		{name: "an agent", deliver: func(t *testing.T, call string) (int, http.Header) {
			return post(t, "/agent/message:send", `{"message":{"messageId":"`+call+`","role":"ROLE_USER","parts":[{"text":"pay"}]}}`)
		}, verdict: func(_ int, v judge.Verdict) judge.Verdict {
			if v == judge.Completed { // none of this is a task
				return judge.Unknown
			}
			return v
		}, runs: again(judge.Aborted)},
		{name: "a tool", deliver: func(t *testing.T, call string) (int, http.Header) {
			status, header, text := do(t, http.MethodPost, s.data("/mcp"), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","_meta":{"idempotency-key":"`+call+`"}}}`, append([]string{"MCP-Protocol-Version", "2025-11-25"}, always...)...)
			if strings.Contains(text, `"isError":true`) { // a model reads what happened
				status = http.StatusBadGateway
			}
			return status, header
		}, verdict: func(_ int, v judge.Verdict) judge.Verdict {
			if v == judge.Completed { // none of this is an answer of JSON-RPC
				return judge.Unknown
			}
			return v
		}, runs: again(judge.Aborted, judge.Failed)},
		{name: "an effect at a provider", deliver: func(t *testing.T, call string) (int, http.Header) {
			_, err := engine.Do(t.Context(), semel.Call{Operation: "shielded", Key: call}, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, upstream, strings.NewReader("{}"))
				if err != nil {
					return semel.Result{}, err
				}
				_, err = (&shield.Client{Timeout: timeout}).Do(ctx, x, "pay", r)
				return semel.Result{}, err
			})
			if err != nil {
				return http.StatusInternalServerError, nil
			}
			return http.StatusOK, nil
		}, verdict: func(status int, v judge.Verdict) judge.Verdict {
			if status == http.StatusPaymentRequired {
				return judge.Rejected
			}
			return unproved(judge.Failed)(status, v)
		}, runs: again(judge.Aborted)},
		{name: "a message", statusOnly: true, deliver: func(t *testing.T, call string) (int, http.Header) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			err := sender.Deliver(ctx, dispatch.Delivery{Message: &semel.Message{ID: call, Payload: []byte("{}")}})
			return int(verdictOf(err)), nil
		}, verdict: unproved(), runs: func(judge.Verdict) bool { return true }}, // by the same id, as long as the dispatcher wants
	}
}

// verdictOf is what a try to deliver a message came to.
func verdictOf(err error) judge.Verdict {
	if err == nil {
		return judge.Completed
	}
	return dispatch.FindingOf(err).Verdict
}

// listenAgain serves at an address that was closed.
func listenAgain(t *testing.T, address string, h http.Handler) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("the port was taken by another program: %v", err)
	}
	srv := &http.Server{Handler: h}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}
