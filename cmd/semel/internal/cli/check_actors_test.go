package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/internal/service/auth"
)

// shownIn is a part of the section of docs/check.md about a kit: its settings, or the words of its
// command.
func shownIn(t *testing.T, kit, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "`semel check "+kit+" URL`")
	section, _, _ = strings.Cut(section, "\n## ")
	found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(section)
	if found == nil {
		t.Fatalf("the section about %s shows no %s", kit, language)
	}
	return found[1]
}

// asShown runs the command that the page shows, with addresses of the test in place of the page's.
func asShown(t *testing.T, kit string, addresses ...string) (int, map[string]check.Verdict) {
	t.Helper()
	line := strings.NewReplacer(append(addresses, `"`, "")...).Replace(shownIn(t, kit, "sh"))
	args := strings.Fields(strings.ReplaceAll(line, "Authorization: Bearer ", "Authorization:Bearer\x00"))
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "\x00", " ")
	}
	code, out, errs := semelWith(t, "", append(args[1:], "--json")...)
	var report check.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || errs != "" {
		t.Fatalf("exit %d, %v, %s", code, err, errs)
	}
	verdicts := map[string]check.Verdict{}
	for _, v := range report.Verdicts {
		verdicts[v.ID] = v
	}
	return code, verdicts
}

func wantKept(t *testing.T, sentences int, code int, verdicts map[string]check.Verdict) {
	t.Helper()
	if code != ExitOK || len(verdicts) != sentences {
		t.Errorf("exit %d, %d verdicts", code, len(verdicts))
	}
	for id, v := range verdicts {
		if v.Outcome != check.Kept {
			t.Errorf("%s is %s, and rests on %s: %s", id, v.Outcome, v.Rests, v.Saw)
		}
	}
}

func TestCheckActivityPubOfTheService(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func() string{
		"memory":   func() string { return "memory:" },
		"embedded": func() string { return "pebble:" + t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := freeAddress(t)
			settings := strings.ReplaceAll(shownIn(t, "activitypub", "yaml"), "127.0.0.1:7391", provider)
			at, _ := serving(t, fmt.Sprintf("store: {url: %q}\n%s", store(), settings))
			code, verdicts := asShown(t, "activitypub", "http://127.0.0.1:8480", at, "127.0.0.1:7391", provider, "127.0.0.1:7392", freeAddress(t))
			wantKept(t, 18, code, verdicts)
		})
	}
}

// stock is an agent of the SDK, which doesn't look at the messageId.
type stock struct{ provider string }

func (s stock) Execute(_ context.Context, x *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		resp, err := http.Post("http://"+s.provider, "text/plain", strings.NewReader(x.Message.Parts[0].Text()))
		if err != nil {
			yield(nil, err)
			return
		}
		_ = resp.Body.Close()
		if yield(a2a.NewSubmittedTask(x, x.Message), nil) {
			yield(a2a.NewStatusUpdateEvent(x, a2a.TaskStateCompleted, nil), nil)
		}
	}
}

func (s stock) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}

// serveStock serves such an agent.
func serveStock(t *testing.T, provider string) (url string) {
	t.Helper()
	srv := httptest.NewServer(a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(stock{provider})))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestCheckA2AOfTheService(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func() string{
		"memory":   func() string { return "memory:" },
		"embedded": func() string { return "pebble:" + t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := freeAddress(t)
			token, sum := auth.NewToken()
			settings := strings.ReplaceAll(shownIn(t, "a2a", "yaml"), "http://127.0.0.1:9000", serveStock(t, provider))
			at, _ := serving(t, fmt.Sprintf("store: {url: %q}\nauth: {tokens: [{name: alice, tenant: acme, sha256: %q}]}\n%s", store(), sum, settings))
			code, verdicts := asShown(t, "a2a", "http://127.0.0.1:8480", at, "127.0.0.1:7391", provider, "$TOKEN", token)
			wantKept(t, 14, code, verdicts)
		})
	}
}

func TestCheckA2AOfAStockAgentIsRed(t *testing.T) {
	t.Parallel()
	provider := freeAddress(t)
	code, verdicts := asShown(t, "a2a", "http://127.0.0.1:8480/agent", serveStock(t, provider), "127.0.0.1:7391", provider)
	if code != ExitCheck {
		t.Errorf("exit %d", code)
	}
	for id, want := range map[string]check.Outcome{
		"duplicates.task": check.Broken, "duplicates.once": check.Broken, "duplicates.apart": check.Kept, "concurrent.once": check.Unseen, "task.state": check.Kept, "task.continued": check.Kept,
	} {
		if v := verdicts[id]; v.Outcome != want {
			t.Errorf("%s is %s: %s", id, v.Outcome, v.Saw)
		}
	}
	if v := verdicts["duplicates.task"]; !strings.Contains(strings.Join(v.Reproduce, "\n"), "$key1") || !strings.Contains(v.Rests, "MAP-A2A.1") {
		t.Errorf("it rests on %s, and is seen again by %q", v.Rests, v.Reproduce)
	}
}
