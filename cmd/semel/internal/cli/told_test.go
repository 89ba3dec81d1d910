package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/service/auth"
)

// TestWhatAnOperatorDidIsToldEverywhere: in the record, the API, why, the evidence log and
// the service's log stand who did it and why, and nothing calls it an execution.
func TestWhatAnOperatorDidIsToldEverywhere(t *testing.T) {
	dir := t.TempDir()
	if code, _, errs := semelWith(t, "", "evidence", "keygen", "--origin", "example.com/log", "--out", filepath.Join(dir, "evidence.key")); code != ExitOK {
		t.Fatal(errs)
	}
	text := fmt.Sprintf(`
store: {url: 'pebble:%[1]s/store'}
operations: [{name: pay, evidence: durable}]
evidence: {key_file: '%[1]s/evidence.key'}
auth:
  tokens:
    - {name: shop, tenant: acme, principal: alice, sha256: %[2]s}
    - {name: olga, roles: [admin], sha256: %[3]s}
`, dir, auth.HashToken("a-token"), auth.HashToken("olgas-token"))
	write(t, filepath.Join(dir, "semel.yaml"), text)
	url, admin, stop := servingUntil(t, text)
	c, err := client.New(url, &client.Options{Token: "a-token"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("SEMEL_TOKEN", "olgas-token")
	run := func(args ...string) string {
		t.Helper()
		code, out, errs := semelWith(t, "", args...)
		if code != ExitOK {
			t.Fatalf("%q: exit %d, %s%s", args, code, out, errs)
		}
		return out
	}
	name := func(key string) []string {
		return []string{"--tenant", "acme", "--principal", "alice", "--operation", "pay", "--key", key}
	}
	ask := func(verb, key string, args ...string) string {
		t.Helper()
		return run(append(append([]string{"records", verb, "--url", admin}, name(key)...), args...)...)
	}
	// api is what the API answers about the call with a key.
	api := func(key string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, admin+"/v1/records?q=key:"+key, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer olgas-token")
		resp, err := stage.Direct.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp.StatusCode, string(body), err)
		}
		return string(body)
	}

	did := []struct {
		key    string
		verb   string
		effect bool // of which nobody knows whether it happened
		args   []string
	}{
		{"order-completed", "settle", false, []string{"--outcome", "completed", "--result", "by hand"}},
		{"order-aborted", "settle", false, []string{"--outcome", "aborted"}},
		{"order-effect", "settle", true, []string{"--effect", `charge=confirmed:"ch_1"`}},
		{"order-released", "release", false, nil},
		{"order-purged", "purge", false, nil},
	}
	reason := func(key string) string { return "seen at the bank, ticket of " + key }
	for _, d := range did {
		_, err := c.Do(t.Context(), semel.Call{Operation: "pay", Key: d.key}, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			lost := semel.Unknown(errors.New("the bank did not answer"))
			if d.effect {
				_, err := semel.Effect(ctx, x, "charge", func(context.Context, string) (string, error) { return "", lost })
				return semel.Result{}, err
			}
			if d.verb == "purge" {
				return semel.Result{}, nil
			}
			return semel.Result{}, lost
		})
		if (err == nil) != (d.verb == "purge") {
			t.Fatal(d.key, err)
		}
		ask(d.verb, d.key, append(d.args, "--reason", reason(d.key), "--yes")...)
	}

	places := map[string]map[string]string{} // of each call, and what is said there
	for _, d := range did {
		places[d.key] = map[string]string{}
		if d.verb == "purge" {
			continue // there is no record any more
		}
		places[d.key]["the API"] = api(d.key)
		places[d.key]["records get"] = ask("get", d.key)
		places[d.key]["why"] = run("why", "--url", admin, d.key)
	}
	log := stop()
	if t.Failed() {
		return
	}
	file := filepath.Join(dir, "semel.yaml")
	for _, d := range did {
		if d.verb != "purge" {
			places[d.key]["the record in the store"] = run(append([]string{"records", "get", "--json", "--store", "pebble:" + filepath.Join(dir, "store")}, name(d.key)...)...)
		}
		places[d.key]["evidence show"] = run("evidence", "show", "--config", file, "--tenant", "acme", d.key)
		for line := range strings.Lines(run("evidence", "export", "--config", file)) {
			if strings.Contains(line, reason(d.key)) {
				places[d.key]["the evidence log"] += line
			}
		}
		for line := range strings.Lines(log) {
			if strings.Contains(line, reason(d.key)) {
				places[d.key]["the service's log"] += line
			}
		}
		want := 7
		if d.verb == "purge" {
			want = 3
		}
		if len(places[d.key]) != want {
			t.Errorf("%s is told of in %d places, want %d", d.key, len(places[d.key]), want)
		}
		for place, said := range places[d.key] {
			if !strings.Contains(said, "olga") || !strings.Contains(said, reason(d.key)) {
				t.Errorf("%s: %s doesn't say who did it and why:\n%s", d.key, place, said)
			}
			for _, wrong := range []string{"execution.executed", "it was executed", "executed once"} {
				if d.verb != "purge" && strings.Contains(said, wrong) {
					t.Errorf("%s: %s says %q:\n%s", d.key, place, wrong, said)
				}
			}
		}
	}
}
