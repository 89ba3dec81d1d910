package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/stage"
)

// TestAHeldRequestIsSettledWithAnAnswer: the upstream dies after it has taken a
// request, an operator settles the call, and the client gets what they said.
func TestAHeldRequestIsSettledWithAnAnswer(t *testing.T) {
	var taken atomic.Int32
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		taken.Add(1)
		panic(http.ErrAbortHandler) // the connection breaks, and nobody knows why
	}))
	defer upstream.Close()
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	var log bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		code := Run(ctx, []string{"proxy", upstream.URL, "--listen", "127.0.0.1:0", "--store", "memory:", "--json"}, strings.NewReader(""), w, &log)
		_ = w.Close()
		ended <- code
	}()
	var at struct {
		URL      string `json:"url"`
		AdminURL string `json:"admin_url"`
	}
	err := json.NewDecoder(r).Decode(&at)
	defer func() {
		stop()
		if code := <-ended; code != ExitOK || err != nil || t.Failed() {
			t.Errorf("the proxy ended with exit %d, %v:\n%s", code, err, &log)
		}
	}()
	if err != nil {
		return
	}
	send := func() (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at.URL+"/refunds", strings.NewReader(`{"charge":"ch_1"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "order-7")
		resp, err := stage.Direct.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	if resp, body := send(); resp.StatusCode != http.StatusBadGateway {
		t.Fatalf("%d, %s", resp.StatusCode, body)
	}
	resp, body := send()
	if resp.StatusCode != http.StatusConflict || !strings.Contains(body, `"held"`) {
		t.Fatalf("%d, %s", resp.StatusCode, body)
	}
	var problem struct{ Reference, Instance string }
	if err := json.Unmarshal([]byte(body), &problem); err != nil {
		t.Fatal(err)
	}
	ask := func(want int, args ...string) (out, errs string) {
		t.Helper()
		code, out, errs := semelWith(t, "", append([]string{"records", args[0], "--url", at.AdminURL}, args[1:]...)...)
		if code != want {
			t.Fatalf("%q: exit %d, want %d\n%s%s", args, code, want, out, errs)
		}
		return out, errs
	}
	if out, _ := ask(ExitOK, "list", "held"); !strings.Contains(out, "upstream") {
		t.Errorf("the list does not say why it is held: %s", out)
	}
	settle := []string{"settle", "--operation", "proxy", "--key", "order-7", "--reason", "seen at the provider", "--yes", "--outcome", "completed"}
	if _, errs := ask(ExitUsage, append(settle, "--result", `{"refund":"re_1"}`)...); !strings.Contains(errs, "--status") {
		t.Errorf("the refusal of a bare result names no flag: %s", errs)
	}
	ask(ExitUsage, append(settle, "--status", "402")...)
	ask(ExitOK, append(settle, "--status", "201", "--header", "Content-Type: application/json", "--result", `{"refund":"re_1"}`)...)

	resp, body = send()
	if resp.StatusCode != http.StatusCreated || body != `{"refund":"re_1"}` || resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the client gets %d, %v, %s", resp.StatusCode, resp.Header, body)
	}
	if n := taken.Load(); n != 1 {
		t.Errorf("the upstream was asked %d times", n)
	}
	name := []string{"get", "--operation", "proxy", "--key", "order-7"}
	out, _ := ask(ExitOK, name...)
	for _, want := range []string{"201 Created", "Content-Type: application/json", `{"refund":"re_1"}`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	var rec recordLine
	shown := out
	defer func() {
		if t.Failed() {
			return
		}
		for _, name := range []string{"order-7", rec.ID, rec.ID + ".1", problem.Reference, problem.Instance, at.URL + "/semel/status/" + problem.Reference, logName(t, rec.ID)} {
			if got, _ := ask(ExitOK, "get", name); got != shown {
				t.Errorf("by %q there is\n%s", name, got)
			}
			if got, _ := ask(ExitOK, "list", "--json", name); !strings.Contains(got, rec.ID) || strings.Count(got, "\n") != 1 {
				t.Errorf("by the word %s there is\n%s", name, got)
			}
		}
		ask(ExitNotFound, "get", "proxy/000000000000")
		ask(ExitNotFound, "get", "order-8")
	}()
	out, _ = ask(ExitOK, append(name, "--json")...)
	if err := json.Unmarshal([]byte(out), &rec); err != nil || rec.Answer == nil || rec.Answer.Status != 201 || rec.Answer.Body != `{"refund":"re_1"}` {
		t.Errorf("%v in %s", err, out)
	}
}

// TestALocalRequestIsSettledWithAnAnswer is the same by the directory of a service
// that is stopped, whose configuration names the routes.
func TestALocalRequestIsSettledWithAnAnswer(t *testing.T) {
	dir, e, leave := newStore(t, &semel.Options{Operations: []semel.Operation{{Name: "charge"}, {Name: "job"}}})
	for _, operation := range []string{"charge", "job"} {
		ans, err := e.Begin(t.Context(), semel.Call{Operation: operation, Key: "k"})
		if err == nil {
			err = ans.Attempt.Hold(t.Context(), "the upstream's answer broke off")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	leave()
	file := filepath.Join(t.TempDir(), "semel.yaml")
	text := "store: {url: 'pebble:" + dir + "'}\noperations: [{name: charge}, {name: job}]\nroutes: [{match: 'POST /', upstream: 'http://127.0.0.1:9', operation: charge}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	settle := func(operation string, more ...string) (int, string) {
		code, _, errs := semelWith(t, "", append([]string{"records", "settle", "--config", file, "--operation", operation, "--key", "k", "--reason", "r", "--outcome", "completed"}, more...)...)
		return code, errs
	}
	if code, errs := settle("charge", "--result", "x", "--dry-run"); code != ExitUsage || !strings.Contains(errs, "--status") {
		t.Errorf("a bare result: exit %d, %s", code, errs)
	}
	if code, errs := settle("charge", "--status", "201", "--header", "Set-Cookie: a=b", "--yes"); code != ExitUsage || !strings.Contains(errs, "credential") {
		t.Errorf("a header that is not replayed: exit %d, %s", code, errs)
	}
	if code, errs := settle("charge", "--header", "Etag: 1", "--yes"); code != ExitUsage || !strings.Contains(errs, "--header needs --status") {
		t.Errorf("a header alone: exit %d, %s", code, errs)
	}
	if code, errs := settle("charge", "--status", "200", "--result", strings.Repeat("x", 2<<20), "--yes"); code != ExitUsage || !strings.Contains(errs, "keeps") {
		t.Errorf("a result that is too large: exit %d, %s", code, errs)
	}
	if code, errs := settle("job", "--result", "x", "--yes"); code != ExitOK {
		t.Errorf("an operation without a route: exit %d, %s", code, errs)
	}
	if code, errs := settle("charge", "--status", "204", "--yes"); code != ExitOK {
		t.Errorf("exit %d, %s", code, errs)
	}
	code, out, _ := semelWith(t, "", "records", "get", "--config", file, "--operation", "charge", "--key", "k")
	if code != ExitOK || !strings.Contains(out, "204 No Content") {
		t.Errorf("exit %d, %s", code, out)
	}
}
