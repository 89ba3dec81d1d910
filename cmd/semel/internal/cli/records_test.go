package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/pebblestore"
)

// recordsDir is a directory with one record in each state, whose keys name them.
func recordsDir(t *testing.T) (store string) {
	t.Helper()
	dir, e, leave := newStore(t, &semel.Options{Node: "node", Operations: []semel.Operation{{Name: "charge"}, {Name: "mail"}}})
	populate(t, e)
	leave()
	return "pebble:" + dir
}

func populate(t *testing.T, e *semel.Engine) {
	t.Helper()
	begin := func(operation, key string) *semel.Attempt {
		t.Helper()
		ans, err := e.Begin(t.Context(), semel.Call{Tenant: "acme", Principal: "shop", Operation: operation, Key: key})
		if err != nil || ans.Attempt == nil {
			t.Fatal(ans.Decision, err)
		}
		ans.Attempt.Detach()
		return ans.Attempt
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	check(begin("charge", "done").Complete(ctx, semel.Result{Data: []byte(`{"charge":"ch_1"}`)}))
	check(begin("charge", "refused").Reject(ctx, store.Failure{Code: "declined", Message: "no funds"}, semel.Result{}))
	check(begin("charge", "held").Hold(ctx, "the provider did not answer"))
	open := begin("charge", "open")
	_, err := open.StartEffect(ctx, "ch=arge")
	check(err)
	check(open.Hold(ctx, "who knows"))
	begin("mail", "running \x1b[31m")
}

// named are the flags that name a record of recordsDir.
func named(key string) []string {
	return []string{"--tenant", "acme", "--principal", "shop", "--operation", "charge", "--key", key}
}

func records(t *testing.T, store string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return semelWith(t, "", append([]string{"records", args[0], "--store", store}, args[1:]...)...)
}

// listedKeys runs list --json and returns the keys in their order.
func listedKeys(t *testing.T, st string, args ...string) (keys []string, stderr string) {
	t.Helper()
	code, out, errs := records(t, st, append([]string{"list", "--json"}, args...)...)
	if code != ExitOK {
		t.Fatalf("exit %d, %s", code, errs)
	}
	for line := range strings.Lines(out) {
		var rec recordLine
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatal(err)
		}
		if id, err := store.DecodeID(rec.ID); err != nil || id.Key != rec.Key || id.Operation != rec.Operation {
			t.Errorf("the name of %+v is %s", rec, rec.ID)
		}
		keys = append(keys, rec.Key)
	}
	return keys, errs
}

func TestRecordsHelp(t *testing.T) {
	for _, verb := range []string{"", "list", "get", "settle", "release", "confirm", "purge"} {
		args := slices.DeleteFunc([]string{"records", verb}, func(s string) bool { return s == "" })
		name := "semel-" + strings.Join(args, "-")
		t.Run("the help of "+name+" is as recorded", func(t *testing.T) {
			code, out, errs := semelWith(t, "", append(args, "--help")...)
			if code != ExitOK || errs != "" {
				t.Fatalf("exit %d, %s", code, errs)
			}
			golden(t, "help/"+name+".txt", out)
			for line := range strings.Lines(out) {
				if len(line) > 100 {
					t.Errorf("a line has %d bytes: %s", len(line), line)
				}
			}
		})
	}
}

// TestRecordsOfAService runs the commands against a service, over its API.
func TestRecordsOfAService(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "semel.yaml")
	text := "listen: {address: '127.0.0.1:0'}\nadmin: {address: '127.0.0.1:0'}\nstore: {url: 'memory:'}\noperations: [{name: charge}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan int, 1)
	var log bytes.Buffer
	go func() {
		code := Run(ctx, []string{"serve", "--config", file, "--json"}, strings.NewReader(""), w, &log)
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
			t.Errorf("the service ended with exit %d, %v:\n%s", code, err, &log)
		}
	}()
	if err != nil {
		return
	}
	c, err := client.New(at.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ans, _ := c.Do(t.Context(), semel.Call{Operation: "charge", Key: "order 1"}, func(context.Context, semel.Execution) (semel.Result, error) {
		return semel.Result{}, semel.Unknown(errors.New("the provider did not answer"))
	})
	ask := func(want int, verb string, args ...string) string {
		t.Helper()
		code, out, errs := semelWith(t, "", append([]string{"records", verb, "--url", at.AdminURL}, args...)...)
		if code != want {
			t.Fatalf("%s: exit %d, %s%s", verb, code, out, errs)
		}
		return out
	}
	var rec recordLine
	if err := json.Unmarshal([]byte(ask(ExitOK, "list", "--json", `key:"order 1"`, "held")), &rec); err != nil {
		t.Fatal(err)
	}
	if rec.HeldReason != "the provider did not answer" || rec.Key != "order 1" || ans.Record != nil && ans.Record.ID.Encode() != rec.ID {
		t.Errorf("listed is %+v", rec)
	}
	var page struct{ Records []map[string]any }
	var line map[string]any
	resp, err := http.Get(at.AdminURL + "/v1/records?q=held")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	err = errors.Join(json.NewDecoder(resp.Body).Decode(&page), json.Unmarshal([]byte(ask(ExitOK, "list", "--json", "held")), &line))
	if err != nil || len(page.Records) != 1 {
		t.Fatal(err, page)
	}
	delete(page.Records[0], "decisions")
	if line["verdict"] == nil || !reflect.DeepEqual(line, page.Records[0]) {
		t.Errorf("the command prints\n%v, and the service answers\n%v", line, page.Records[0])
	}
	why := []string{rec.ID, "--reason", "ticket 7", "--yes"}
	ask(ExitConflict, "purge", why...)
	ask(ExitOK, "settle", append(why, "--outcome", "completed", "--result", "by hand")...)
	ask(ExitConflict, "settle", append(why, "--outcome", "completed")...)
	if out := ask(ExitOK, "get", rec.ID); !strings.Contains(out, "7 bytes: by hand") {
		t.Error(out)
	}
	ask(ExitUsage, "list", "--cursor", "garbage")
	ask(ExitOK, "purge", why...)
	ask(ExitNotFound, "get", rec.ID)
	if out := ask(ExitOK, "list", "--json"); out != "" {
		t.Error(out)
	}
}

func TestRecordsList(t *testing.T) {
	store := recordsDir(t)
	all := []string{"running \x1b[31m", "open", "held", "refused", "done"}
	t.Run("the newest come first", func(t *testing.T) {
		if got, errs := listedKeys(t, store); !slices.Equal(got, all) || errs != "" {
			t.Errorf("%q, %s", got, errs)
		}
	})
	t.Run("qualifiers select", func(t *testing.T) {
		for query, want := range map[string][]string{
			"operation:charge held":         {"open", "held"},
			"state:failed":                  {"refused"},
			"state:processing":              all[:3],
			"key:done":                      {"done"},
			"tenant:acme before:2020-01-01": nil,
			`tenant:""`:                     nil,
		} {
			if got, _ := listedKeys(t, store, query); !slices.Equal(got, want) {
				t.Errorf("%s lists %q, want %q", query, got, want)
			}
		}
		if got, _ := listedKeys(t, store, "held", "operation:charge", "key:held"); !slices.Equal(got, []string{"held"}) {
			t.Errorf("several arguments list %q", got)
		}
	})
	t.Run("the limit ends a list, and the cursor goes on", func(t *testing.T) {
		got, errs := listedKeys(t, store, "--limit", "2")
		cursor, ok := strings.CutPrefix(strings.TrimSpace(errs), "There may be more: --cursor ")
		if !slices.Equal(got, all[:2]) || !ok {
			t.Fatalf("%q, %s", got, errs)
		}
		if got, errs := listedKeys(t, store, "--cursor", cursor, "--limit", "3"); !slices.Equal(got, all[2:]) || errs != "" {
			t.Errorf("%q, %s", got, errs)
		}
		if code, _, errs := records(t, store, "list", "--cursor", "bogus"); code == ExitOK || strings.Contains(errs, "more:") {
			t.Errorf("exit %d, %s", code, errs)
		}
		if got, _ := listedKeys(t, store, "--cursor", cursor, "--all"); !slices.Equal(got, all[2:]) {
			t.Errorf("%q", got)
		}
	})
	t.Run("for people it is a table, which no key can spoil", func(t *testing.T) {
		code, out, errs := records(t, store, "list")
		if code != ExitOK || strings.Contains(out, "\x1b") || !strings.Contains(out, `"running \x1b[31m"`) {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
		if !regexp.MustCompile(`(?m)^AGE +STATE +OPERATION +KEY +PRINCIPAL +WHY\n`).MatchString(out) ||
			!regexp.MustCompile(`(?m)^\d+(ms|[smh]) +rejected +charge +refused +shop +declined: no funds$`).MatchString(out) {
			t.Error(out)
		}
		if !regexp.MustCompile(`(?m)^Settle it: +semel records settle --store \S+ \S+ --(outcome|effect) `).MatchString(errs) {
			t.Errorf("nothing says how to settle one: %s", errs)
		}
	})
	t.Run("a call with an open effect is settled by that effect", func(t *testing.T) {
		if _, _, errs := records(t, store, "list", "key:open"); !regexp.MustCompile(`(?m)^Settle it: +semel records settle --store \S+ \S+ --effect 'ch=arge=confirmed:JSON' or 'ch=arge=refuted' --reason`).MatchString(errs) {
			t.Error(errs)
		}
	})
	t.Run("wide it has everything, and the name for other commands", func(t *testing.T) {
		code, out, _ := records(t, store, "list", "--wide", "key:refused")
		name := semel.ID{Tenant: "acme", Principal: "shop", Operation: "charge", Key: "refused"}.Encode()
		if code != ExitOK || !regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +\d+(ms|[smh]) +rejected +1 +charge +refused +acme +shop +- +- +`+name+` +declined: no funds$`).MatchString(out) {
			t.Errorf("exit %d, %s", code, out)
		}
	})
	for name, args := range map[string][]string{
		"a qualifier that there is not": {"sate:failed"},
		"a limit of none":               {"--limit", "0"},
		"a limit on all":                {"--all", "--limit", "5"},
		"a cursor of another store":     {"--cursor", "garbage"},
		"a token for a directory":       {"--token-file", "x"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			if code, out, errs := records(t, store, append([]string{"list"}, args...)...); code != ExitUsage || out != "" || errs == "" || strings.Contains(errs, "semel: semel") {
				t.Errorf("exit %d, %s%s", code, out, errs)
			}
		})
	}
}

func TestRecordsStore(t *testing.T) {
	t.Parallel()
	t.Run("a directory in use is unavailable, and the words say what to do", func(t *testing.T) {
		store := recordsDir(t)
		s, err := pebblestore.Open(strings.TrimPrefix(store, "pebble:"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		code, _, errs := records(t, store, "list")
		if code != ExitUnavailable || !strings.Contains(errs, "is in use: stop the service that has it open, or ask it with --url") {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
	t.Run("a directory that is not there is not made", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "none")
		if code, _, errs := records(t, "pebble:"+dir, "list"); code != ExitCheck || !strings.Contains(errs, "there is no store in "+dir) {
			t.Errorf("exit %d, %s", code, errs)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Error("it was made")
		}
	})
	t.Run("what only its own process can open is not opened here", func(t *testing.T) {
		if code, _, errs := records(t, "memory:", "list"); code != ExitUsage || !strings.Contains(errs, "--url") {
			t.Errorf("exit %d, %s", code, errs)
		}
		if code, _, errs := records(t, "pebble:", "list"); code != ExitCheck || !strings.Contains(errs, "flag --store: store.url: pebble: needs a directory") {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
	t.Run("a service excludes a directory", func(t *testing.T) {
		if code, _, errs := records(t, "pebble:x", "list", "--url", "http://127.0.0.1:1"); code != ExitUsage || !strings.Contains(errs, "excludes") {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
	t.Run("a service out of reach is unavailable", func(t *testing.T) {
		var out, errs bytes.Buffer
		code := Run(t.Context(), []string{"records", "get", "--url", "http://127.0.0.1:1", "--operation", "o", "--key", "k"}, strings.NewReader(""), &out, &errs)
		if code != ExitUnavailable {
			t.Errorf("exit %d, %s", code, &errs)
		}
	})
}

func TestRecordsGet(t *testing.T) {
	store := recordsDir(t)
	t.Run("by its members, and by the name that this gives", func(t *testing.T) {
		code, out, errs := records(t, store, append([]string{"get", "--json"}, named("refused")...)...)
		if code != ExitOK {
			t.Fatalf("exit %d, %s", code, errs)
		}
		wantFields(t, out, "id", "tenant", "principal", "idempotency_key", "operation", "status", "disposition", "fence", "attempt", "holder",
			"created_at", "updated_at", "started_at", "ended_at", "expires_at", "attempts", "effects", "error", "decisions", "verdict")
		var line recordLine
		if err := json.Unmarshal([]byte(out), &line); err != nil {
			t.Fatal(err)
		}
		code, again, errs := records(t, store, "get", "--json", line.ID)
		if code != ExitOK || again != out {
			t.Errorf("exit %d, %s%s", code, again, errs)
		}
	})
	t.Run("for people", func(t *testing.T) {
		_, out, _ := records(t, store, append([]string{"get"}, named("open")...)...)
		for _, want := range []string{`(?m)^state +held$`, `(?m)^held because +who knows$`, `(?m)^effect +ch=arge: started since `, `(?m)^attempt +1, fence \d+, by node for shop$`} {
			if !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%s is not in\n%s", want, out)
			}
		}
		_, out, _ = records(t, store, append([]string{"get"}, named("done")...)...)
		if !regexp.MustCompile(`(?m)^result +17 bytes: \{"charge":"ch_1"\}$`).MatchString(out) {
			t.Error(out)
		}
	})
	t.Run("by its operation and key alone, if one caller has used them", func(t *testing.T) {
		code, out, errs := records(t, store, "get", "--operation", "charge", "--key", "done")
		if code != ExitOK || !regexp.MustCompile(`(?m)^principal +shop$`).MatchString(out) {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
		if code, _, errs := records(t, store, "get", "--operation", "charge", "--key", "none"); code != ExitNotFound || !strings.Contains(errs, "no record of the operation charge has the key none") {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
	t.Run("one that is not there", func(t *testing.T) {
		if code, out, errs := records(t, store, append([]string{"get"}, named("none")...)...); code != ExitNotFound || out != "" {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
	})
	for name, args := range map[string][]string{
		"no name":            {},
		"half a name":        {"--key", "k"},
		"two names":          {"x", "y"},
		"a name and members": {semel.ID{Key: "k"}.Encode(), "--key", "k"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			if code, _, errs := records(t, store, append([]string{"get"}, args...)...); code != ExitUsage {
				t.Errorf("exit %d, %s", code, errs)
			}
		})
	}
}
