package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/service/auth"
)

// deliver begins a call of the operation pay over the API, ends it, and repeats it.
func deliver(t *testing.T, url, key string) {
	t.Helper()
	send := func(path, body string) (answer map[string]any) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
		resp, err := stage.Direct.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil {
			err = json.Unmarshal(text, &answer)
		}
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	const begin = "/v1/operations/pay/executions"
	execution, ok := send(begin, `{"payload":{"amount":12}}`)["execution"].(string)
	if !ok {
		t.Fatal("nothing is executed")
	}
	send("/v1/executions/"+execution+"/complete", `{"result":{"receipt":1}}`)
	if d := send(begin, `{"payload":{"amount":12}}`)["decision"]; d != "replay" {
		t.Fatalf("the decision is %v", d)
	}
}

// busyPatience is how long something may take that takes a second on a machine with nothing else
// to do: a test is not to fail because others run beside it.
const busyPatience = 2 * time.Minute

// until repeats f until it reports true, for a condition that another process brings about.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), busyPatience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-ctx.Done():
			t.Fatal(what)
		case <-tick.C:
		}
	}
}

const payOperation = "store: {url: 'memory:'}\noperations: [{name: pay}]\n"

func TestTopPrintsATable(t *testing.T) {
	data, admin := serving(t, payOperation)
	deliver(t, data, "order-1")
	for _, args := range [][]string{{"top", "--once", "--url", admin}, {"top", "--once", "--url", admin, "--window", "5m"}} {
		code, out, errs := semelWith(t, "", args...)
		if code != ExitOK || errs != "" || strings.Contains(out, "\x1b") {
			t.Fatalf("exit %d, %q%s", code, out, errs)
		}
		for _, want := range []string{"deliveries 2  stopped 1 (50.0 %)  polls 0  conflicts 0  turned away 0  failed 0  refused 0\n", "nodes 1\n", "replay    1           50.0 %", "pay        1        50.0 %", "order-1       1        pay"} {
			if !strings.Contains(out, want) {
				t.Errorf("it doesn't say %q:\n%s", want, out)
			}
		}
	}
	until(t, "the node doesn't count what is open", func() bool {
		code, out, errs := semelWith(t, "", "top", "--json", "--url", admin)
		wantFields(t, out, "figures", "attempts")
		if code != ExitOK || errs != "" {
			t.Fatalf("exit %d, %s", code, errs)
		}
		return !strings.Contains(out, `"attempts": null`)
	})
	for args, want := range map[string]int{
		"top --interval 1ms": ExitUsage, "top --window 2h": ExitUsage, "top --url x:y": ExitUsage, "top --url " + data: ExitUnavailable, "top --url http://127.0.0.1:1": ExitUnavailable,
		"top now": ExitUsage,
	} {
		if code, out, errs := semelWith(t, "", strings.Fields(args)...); code != want || out != "" || errs == "" {
			t.Errorf("%s: exit %d, %s%s", args, code, out, errs)
		}
	}
}

// A viewer of one tenant sees that tenant's figures.
func TestTopOfATenant(t *testing.T) {
	_, address := serving(t, fmt.Sprintf("store: {url: 'memory:'}\nauth: {tokens: [{name: eye, tenant: acme, roles: [viewer], sha256: %s}]}\n", auth.HashToken("the-viewers-token")))
	t.Setenv("SEMEL_TOKEN", "the-viewers-token")
	code, out, errs := semelWith(t, "", "top", "--once", "--url", address)
	if code != ExitOK || errs != "" || !strings.Contains(out, "of the tenant \"acme\" alone\ndeliveries 0") || !strings.Contains(out, "counted for all tenants only") {
		t.Errorf("exit %d, %s%s", code, errs, out)
	}
	if code, out, _ := semelWith(t, "", "top", "--json", "--url", address); code != ExitOK || !strings.Contains(out, `"attempts": null`) {
		t.Errorf("exit %d, %s", code, out)
	}
}

// TestTheCommandsOfThePage runs what the page on the service shows for a terminal.
func TestTheCommandsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "```sh\nsemel doctor\n")
	if !ok {
		t.Fatal("the page has no block that begins with semel doctor")
	}
	text, _, _ = strings.Cut("semel doctor\n"+text, "```")
	data, admin := serving(t, payOperation)
	deliver(t, data, "order-1")
	t.Setenv("SEMEL_URL", admin)
	for line := range strings.Lines(text) {
		args := strings.Fields(strings.ReplaceAll(line, "'", ""))[1:]
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out, errs := io.Writer(&bytes.Buffer{}), &bytes.Buffer{}
		if args[0] == "tail" {
			out = &stopsAt{text: "replay", stop: cancel}
		}
		if code := Run(ctx, args, strings.NewReader(""), out, errs); code != ExitOK {
			t.Errorf("%s: exit %d, %s%s", line, code, out, errs)
		}
	}
}

// safe is a buffer for two goroutines.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestTailPrintsLines(t *testing.T) {
	data, admin := serving(t, payOperation)
	deliver(t, data, "order-1")
	for _, test := range []struct {
		args        []string
		want, wants int // lines with decisions
	}{
		{[]string{"tail", "--recent", "--url", admin}, 3, 3},
		{[]string{"tail", "--recent", "--json", "--url", admin, "key:order-1", "-decision:execute"}, 2, 2},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var out, errs safe
		ended := make(chan int, 1)
		go func() { ended <- Run(ctx, test.args, strings.NewReader(""), &out, &errs) }()
		until(t, "the events don't come", func() bool { return strings.Count(out.String(), "\n") >= test.want })
		cancel()
		if code := <-ended; code != ExitOK || !strings.HasPrefix(errs.String(), "semel: following what "+admin) {
			t.Errorf("%q: exit %d, %s", test.args, code, errs.String())
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		last := lines[len(lines)-1]
		if len(lines) != test.want || !strings.Contains(last, "replay") || !strings.Contains(last, "order-1") || strings.Contains(last, "\x1b") {
			t.Errorf("%q prints\n%s", test.args, out.String())
		}
		if strings.HasPrefix(last, "{") {
			wantFields(t, last, "id", "event", "idempotency_key", "data")
		}
	}
	for args, want := range map[string]string{
		"tail decision:replya":   "did you mean replay?",
		"tail attribute:order=1": "events have no attributes",
	} {
		code, out, errs := semelWith(t, "", strings.Fields(args)...)
		if code != ExitUsage || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %s%s", args, code, out, errs)
		}
	}
	if code, _, errs := semelWith(t, "", "tail", "--url", "http://127.0.0.1:1"); code != ExitUnavailable || !strings.Contains(errs, "no service answers") {
		t.Errorf("exit %d, %s", code, errs)
	}
}
