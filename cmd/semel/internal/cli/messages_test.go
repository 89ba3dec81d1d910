package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/store"
)

// messagesDir is a directory with a call that has sent a message, "waits", which is
// pending, and two that are parked.
func messagesDir(t *testing.T) (st, call string, ids map[string]string) {
	t.Helper()
	dir, e, leave := newStore(t, &semel.Options{Operations: []semel.Operation{{Name: "order"}}})
	ans, err := e.Do(t.Context(), semel.Call{Tenant: "acme", Operation: "order", Key: "o1"}, func(_ context.Context, x semel.Execution) (semel.Result, error) {
		for _, name := range []string{"waits", "bad", "worse\x1b[31m"} {
			if err := semel.Send(x, semel.Message{Name: name, Destination: "billing", Payload: []byte(`{"n":1}`)}); err != nil {
				return semel.Result{}, err
			}
		}
		return semel.Result{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ids = map[string]string{}
	for _, m := range ans.Record.Outbox {
		ids[m.Name[:3]] = m.ID
		if m.Name != "waits" {
			if _, err := e.Internal().SettleMessage(t.Context(), ans.Record.ID, m.ID, store.MessageFinding{
				State: store.MessageParked, Failure: &store.Failure{Code: "status_410", Message: "status 410: the shop has moved"},
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	leave()
	return "pebble:" + dir, ans.Record.ID.Encode(), ids
}

func messages(t *testing.T, store string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return semelWith(t, "", append([]string{"messages", args[0], "--store", store}, args[1:]...)...)
}

func TestMessages(t *testing.T) {
	store, call, ids := messagesDir(t)
	t.Run("list has what is pending or parked, or in the states that are named", func(t *testing.T) {
		for args, want := range map[string]int{
			"": 3, "--state parked": 2, "--state pending": 1, "--state delivered": 0, "--destination other": 0, "key:o1 --state parked,pending": 3, "key:o2": 0, "--limit 1": 1,
		} {
			code, out, errs := messages(t, store, append([]string{"list"}, strings.Fields(args)...)...)
			if n := strings.Count(out, "msg_"); code != ExitOK || n != want || strings.Contains(out, "\x1b") {
				t.Errorf("%s: exit %d, %d messages, want %d: %s%s", args, code, n, want, out, errs)
			}
		}
		clause.Proves(t, "IDS-IX.6")
		if _, out, _ := messages(t, store, "list", "--state", "parked"); strings.Count(out, "  status_410: the shop has moved  ") != 2 {
			t.Errorf("the receivers' words aren't in %s", out)
		}
		code, out, _ := messages(t, store, "list", "--json", "--limit", "1")
		if code != ExitOK || !strings.Contains(out, `"record":"`+call+`"`) {
			t.Errorf("exit %d, %s", code, out)
		}
	})
	t.Run("show has all of one", func(t *testing.T) {
		for _, args := range [][]string{{ids["bad"]}, {ids["bad"], "--record", call}} {
			code, out, errs := messages(t, store, append([]string{"show"}, args...)...)
			for _, want := range []string{ids["bad"], call, "status_410", "billing", `7 bytes: {"n":1}`, "parked"} {
				if code != ExitOK || !strings.Contains(out, want) {
					t.Errorf("exit %d, no %s in %s%s", code, want, out, errs)
				}
			}
		}
		if code, _, errs := messages(t, store, "show", "msg_none"); code != ExitNotFound {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
	t.Run("replay and discard change what is parked", func(t *testing.T) {
		code, out, errs := messages(t, store, "replay", ids["bad"], "--reason", "back", "--dry-run")
		if code != ExitOK || !strings.Contains(out, "dry run") || !strings.Contains(errs, "under the same id") {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
		for _, step := range []struct {
			args []string
			code int
			out  string
		}{
			{[]string{"replay", ids["bad"], "--reason", "back", "--yes"}, ExitOK, "The message is pending.\n"},
			{[]string{"replay", ids["bad"], "--reason", "back", "--yes"}, ExitConflict, ""},
			{[]string{"discard", ids["wor"], "--reason", "no", "--yes", "--record", call}, ExitOK, "The message is discarded.\n"},
			{[]string{"discard", ids["wai"], "--reason", "no", "--yes"}, ExitConflict, ""},
			{[]string{"discard", ids["wor"], "--yes"}, ExitUsage, ""},
			{[]string{"discard", ids["wor"], "--reason", "no"}, ExitUsage, ""},
			{[]string{"discard", "o1", "--reason", "no", "--yes"}, ExitUsage, ""},
			{[]string{"discard", "--reason", "no", "--yes"}, ExitUsage, ""},
			{[]string{"list", "--state", "lost"}, ExitUsage, ""},
			{[]string{"list", "--limit", "0"}, ExitUsage, ""},
		} {
			code, out, errs := messages(t, store, step.args...)
			if code != step.code || out != step.out {
				t.Errorf("%v: exit %d, want %d; %s%s", step.args, code, step.code, out, errs)
			}
		}
		_, out, _ = messages(t, store, "list", "--state", "pending")
		if strings.Count(out, "msg_") != 2 {
			t.Error(out)
		}
		if _, out, _ = messages(t, store, "show", ids["bad"]); !strings.Contains(out, "replayed: back") {
			t.Error(out)
		}
	})
}

// TestMessagesAll gets out of a receiver's outage with one command.
func TestMessagesAll(t *testing.T) {
	store, _, ids := messagesDir(t)
	for _, step := range []struct {
		args string
		code int
		says string
	}{
		{"replay --all --yes", ExitUsage, "--reason is needed"},
		{"replay --all --reason r", ExitUsage, "--yes"},
		{"replay --all --reason r --yes --record x", ExitUsage, "instead of --record"},
		{"replay --destination billing --reason r --yes " + ids["bad"], ExitUsage, "--destination needs --all"},
		{"replay --all sort:of --reason r --yes", ExitUsage, "no such qualifier"},
		{"replay --all --reason r --yes operation:none", ExitOK, "0 messages are changed"},
		{"replay --all --reason r --yes --destination other", ExitOK, "0 messages are changed"},
		{"replay --all --reason r --dry-run order=none OR key:o*", ExitOK, "2 messages would be"},
		{"replay --all --reason r --yes --json after:1h --destination billing", ExitOK, `"action":"replay","done":true`},
		{"discard --all --reason r --yes", ExitOK, "0 messages are changed"},
	} {
		code, out, errs := messages(t, store, strings.Fields(step.args)...)
		if code != step.code || !strings.Contains(out+errs, step.says) || strings.Contains(out+errs, "\x1b") {
			t.Errorf("%s: exit %d, %s%s", step.args, code, out, errs)
		}
	}
	if _, out, _ := messages(t, store, "list", "--state", "pending"); strings.Count(out, "msg_") != 3 {
		t.Error(out)
	}
}

// A change of many says how far it is.
func TestProgress(t *testing.T) {
	c := &messageChanger{change: change[dispatch.Found]{all: true}}
	act := action[dispatch.Found]{name: "discard", do: func(context.Context, client.Records, *dispatch.Found) (*semel.Record, error) { return nil, nil }}
	var out, errs bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	found := slices.Repeat([]*dispatch.Found{{}}, 250)
	if done, lost, err := c.each(t.Context(), cmd, nil, found, true, c, act); done != 250 || lost != 0 || err != nil || errs.String() != "semel: 100 of 250\nsemel: 200 of 250\n" || out.Len() > 0 {
		t.Errorf("%d, %d, %v, %s%s", done, lost, err, &errs, &out)
	}
}

// serving runs a service until the test ends, and returns its addresses.
func serving(t *testing.T, text string) (url, adminURL string) {
	t.Helper()
	url, adminURL, _ = servingUntil(t, text)
	return url, adminURL
}

// servingUntil runs a service until stop is called, which returns its log, or until the
// test ends.
func servingUntil(t *testing.T, text string) (url, adminURL string, stop func() (log string)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "semel.yaml")
	if err := os.WriteFile(file, []byte("listen: {address: 127.0.0.1:0}\nadmin: {address: 127.0.0.1:0}\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan int, 1)
	var log bytes.Buffer
	go func() {
		code := Run(ctx, []string{"serve", "--config", file, "--json"}, strings.NewReader(""), w, &log)
		_ = w.Close()
		ended <- code
	}()
	stop = sync.OnceValue(func() string {
		cancel()
		if code := <-ended; code != ExitOK || t.Failed() {
			t.Errorf("the service ended with exit %d:\n%s", code, &log)
		}
		return log.String()
	})
	t.Cleanup(func() { stop() })
	var at struct {
		URL      string `json:"url"`
		AdminURL string `json:"admin_url"`
	}
	if err := json.NewDecoder(r).Decode(&at); err != nil {
		t.Fatal(err)
	}
	return at.URL, at.AdminURL, stop
}

func TestMessagesOfAService(t *testing.T) {
	got := make(chan string, 10)
	var well atomic.Bool
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !well.Load() {
			w.WriteHeader(http.StatusGone) // parked at once
		}
		got <- r.Header.Get("webhook-id")
	}))
	defer hook.Close()
	url, admin := serving(t, "store: {url: 'memory:'}\nauth: {tokens: [{name: root, roles: [admin], sha256: "+auth.HashToken("a-token")+"}]}\ndispatch: {destinations: [{name: billing, operations: [default], url: '"+hook.URL+"', allow_private: true}]}\n")
	t.Setenv("SEMEL_TOKEN", "a-token")
	c, err := client.New(url, &client.Options{Token: "a-token"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := semelWith(t, "", append(args, "--url", admin)...)
		if code != want {
			t.Fatalf("%v: exit %d, %s%s", args, code, out, errs)
		}
		return out
	}
	ans, err := c.Do(t.Context(), semel.Call{Operation: "default", Key: "o1", Attributes: store.Attributes{"command_id": "c-\x1b1"}}, func(_ context.Context, x semel.Execution) (semel.Result, error) {
		return semel.Result{}, errors.Join(
			semel.Send(x, semel.Message{Name: "a", Destination: "billing"}), semel.Send(x, semel.Message{Name: "b", Destination: "billing"}))
	})
	if err != nil {
		t.Fatal(err)
	}
	first, second := ans.Record.Outbox[0].ID, ans.Record.Outbox[1].ID
	<-got
	<-got
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for strings.Count(ask(ExitOK, "messages", "list", "--state", "parked"), "status_410") != 2 { // the answers are recorded after they came
		<-tick.C
	}
	if out := ask(ExitOK, "messages", "show", first); !strings.Contains(out, "status_410") || strings.Contains(out, "payload") {
		t.Error(out)
	}
	well.Store(true)
	ask(ExitOK, "messages", "replay", first, "--reason", "it is back", "--yes")
	if id := <-got; id != first {
		t.Errorf("replayed was %s", id)
	}
	ask(ExitOK, "messages", "discard", second, "--reason", "ticket 7", "--yes", "--record", ans.Record.ID.Encode())
	if out := ask(ExitOK, "messages", "show", second); !strings.Contains(out, "discarded: ticket 7") {
		t.Error(out)
	}
	out := ask(ExitOK, "records", "get", ans.Record.ID.Encode())
	for _, want := range []string{`(?m)^attribute +command_id: "c-\\x1b1"$`, `(?m)^message +msg_.+: b to billing is discarded after one failed try: discarded: ticket 7$`} {
		if !regexp.MustCompile(want).MatchString(out) || strings.Contains(out, "\x1b") {
			t.Errorf("%s is not in\n%s", want, out)
		}
	}
}

func TestMessagesHelp(t *testing.T) {
	for _, name := range []string{"", "list", "show", "replay", "discard"} {
		args := []string{"messages"}
		if name != "" {
			args = append(args, name)
		}
		code, out, errs := semelWith(t, "", append(args, "--help")...)
		if code != ExitOK || errs != "" {
			t.Fatalf("exit %d, %s", code, errs)
		}
		golden(t, "help/semel-"+strings.Join(args, "-")+".txt", out)
		for line := range strings.Lines(out) {
			if len(line) > 100 {
				t.Errorf("a line has %d bytes: %s", len(line), line)
			}
		}
	}
}
