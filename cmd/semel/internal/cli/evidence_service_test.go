package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/service/auth"
)

// evidentService is a running service that keeps evidence. Its shop has the token a-token, and
// olga, an admin, olgas-token; vera is a viewer of the tenant acme with veras-token.
func evidentService(t *testing.T) (dir, data, admin string, stop func() string) {
	t.Helper()
	dir = t.TempDir()
	code, public, errs := semelWith(t, "", "evidence", "keygen", "--origin", "example.com/log", "--out", filepath.Join(dir, "evidence.key"))
	if code != ExitOK {
		t.Fatal(errs)
	}
	write(t, filepath.Join(dir, "evidence.pub"), public)
	for _, who := range []string{"olga", "vera"} {
		write(t, filepath.Join(dir, who), who+"s-token\n")
	}
	data, admin, stop = servingUntil(t, fmt.Sprintf(`
store: {url: 'pebble:%[1]s/store'}
operations: [{name: pay, evidence: durable}]
evidence: {key_file: '%[1]s/evidence.key', every: 100ms}
auth:
  tokens:
    - {name: shop, tenant: acme, principal: alice, sha256: %[2]s}
    - {name: other, tenant: other, principal: bob, sha256: %[3]s}
    - {name: olga, roles: [admin], sha256: %[4]s}
    - {name: vera, tenant: acme, roles: [viewer], sha256: %[5]s}
`, dir, auth.HashToken("a-token"), auth.HashToken("b-token"), auth.HashToken("olgas-token"), auth.HashToken("veras-token")))
	for _, token := range []string{"a-token", "b-token"} {
		c, err := client.New(data, &client.Options{Token: token})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err := c.Do(t.Context(), semel.Call{Operation: "pay", Key: "order-1"}, func(context.Context, semel.Execution) (semel.Result, error) {
				return semel.Result{Data: []byte("paid")}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir, data, admin, stop
}

// changed is a service between, which changes what it sends.
func changed(t *testing.T, to, old, by string) string {
	t.Helper()
	at, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) },
		ModifyResponse: func(r *http.Response) error {
			text, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			text = bytes.Replace(text, []byte(old), []byte(by), 1)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
			r.Header.Set("Content-Length", fmt.Sprint(len(text)))
			return nil
		},
	})
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestEvidenceOfAService: everything that can be done with a file is done with a running
// service, which isn't believed.
func TestEvidenceOfAService(t *testing.T) {
	clause.Proves(t, "IDS-XII.1", "G-TAMPER")
	dir, _, admin, stop := evidentService(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	run := func(want int, args ...string) (out, errs string) {
		t.Helper()
		code, out, errs := semelWith(t, "", append([]string{"evidence"}, args...)...)
		if code != want {
			t.Fatalf("%q: exit %d instead of %d, %s%s", args, code, want, out, errs)
		}
		return out, errs
	}
	olga := []string{"--url", admin, "--token-file", in("olga")}
	as := func(from []string, args ...string) []string { return append(args, from...) }
	for { // until all is signed
		out, _ := run(ExitOK, as(olga, "verify", "--keys", in("evidence.pub"), "--json")...)
		var report struct {
			Valid   bool
			Entries int
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil || !report.Valid {
			t.Fatal(out, err)
		}
		if report.Entries == 6 {
			break
		}
	}
	t.Run("a call's story is told, by any name", func(t *testing.T) {
		_, listed, _ := semelWith(t, "", as(olga, "records", "list", "--json", "tenant:acme")...)
		var record struct{ ID string }
		if err := json.Unmarshal([]byte(listed), &record); err != nil {
			t.Fatal(listed, err)
		}
		for _, name := range [][]string{{"order-1", "--tenant", "acme"}, {record.ID}, {"--operation", "pay", "--key", "order-1", "--tenant", "acme", "--principal", "alice"}} {
			out, _ := run(ExitOK, as(olga, append([]string{"show"}, name...)...)...)
			if !strings.Contains(out, "operation pay, key order-1, tenant acme\n") || !strings.Contains(out, "it was executed") || strings.Count(out, "\n") != 4 {
				t.Errorf("%q: %s", name, out)
			}
		}
		if out, _ := run(ExitOK, as(olga, "show", "order-1")...); !strings.Contains(out, "tenant acme") || !strings.Contains(out, "tenant other") {
			t.Errorf("two calls have the name: %s", out)
		}
		if out, _ := run(ExitOK, "show", "order-1", "--url", admin, "--token-file", in("vera")); strings.Contains(out, "tenant other") {
			t.Errorf("another tenant's call is shown: %s", out)
		}
		run(ExitNotFound, as(olga, "show", "order-2")...)
		run(ExitUsage, as(olga, "show")...)
	})
	t.Run("an export and a proof are verified elsewhere", func(t *testing.T) {
		_, errs := run(ExitOK, as(olga, "export", "--out", in("log.jsonl"))...)
		if !strings.Contains(errs, "the newest checkpoint of example.com/log has 6 entries") {
			t.Error(errs)
		}
		for _, args := range [][]string{{"export", "--tenant", "other"}, {"export", "--no-openings"}, {"prove", "0", "5"}} {
			out, _ := run(ExitOK, as(olga, args...)...)
			if code, said, errs := semelWith(t, out, "evidence", "verify", "--keys", in("evidence.pub"), "-"); code != ExitOK || !strings.Contains(said, "good") {
				t.Errorf("%q: exit %d, %s%s", args, code, said, errs)
			}
		}
		if out, _ := run(ExitOK, "verify", "--keys", in("evidence.pub"), in("log.jsonl")); !strings.Contains(out, "good  6 entries") {
			t.Error(out)
		}
		run(ExitNotFound, as(olga, "prove", "6")...)
		if out, _ := run(ExitOK, "verify", "--keys", in("evidence.pub"), "--url", admin, "--token-file", in("vera")); !strings.Contains(out, "good  3 entries") || !strings.Contains(out, "no other entries") {
			t.Error(out)
		}
	})
	t.Run("what is wrong is named", func(t *testing.T) {
		for old, test := range map[string]struct{ by, want string }{
			`"executed":true`:    {`"executed":false`, "BAD   entry 0: changed: "},
			`{"end":6}` + "\n":   {"", "BAD   "},
			`"tenant_id":"acme"`: {`"tenant_id":"acne"`, "BAD   entry 0: opening: "},
		} {
			at := changed(t, admin, old, test.by)
			code, out, errs := semelWith(t, "", "evidence", "verify", "--keys", in("evidence.pub"), "--url", at, "--token-file", in("olga"))
			if test.by == "" { // a client notices that before
				if code != ExitUnavailable || !strings.Contains(errs, "its last line is missing") {
					t.Errorf("%q: exit %d, %s%s", old, code, out, errs)
				}
				continue
			}
			if code != ExitCheck || !strings.HasPrefix(out, test.want) || errs != "" {
				t.Errorf("%q: exit %d, %s%s", old, code, out, errs)
			}
		}
		if _, other, _ := semelWith(t, "", "evidence", "keygen", "--origin", "example.com/log", "--out", in("other.key")); other != "" {
			write(t, in("other.pub"), other)
		}
		if out, _ := run(ExitCheck, as(olga, "verify", "--keys", in("other.pub"))...); !strings.Contains(out, "signature") {
			t.Errorf("a log that somebody else signed: %s", out)
		}
		run(ExitUsage, as(olga, "verify")...)
		run(ExitUsage, as(olga, "verify", "--keys", in("evidence.pub"), in("log.jsonl"))...)
	})
	t.Run("what was cut off before it was kept elsewhere is found", func(t *testing.T) {
		text, err := os.ReadFile(in("log.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		var kept string
		for line := range strings.Lines(string(text)) {
			var c struct{ Checkpoint string }
			if json.Unmarshal([]byte(line), &c) == nil && c.Checkpoint != "" {
				kept = c.Checkpoint
			}
		}
		write(t, in("kept"), kept)
		if out, _ := run(ExitOK, as(olga, "verify", "--keys", in("evidence.pub"), "--checkpoints", in("kept"))...); !strings.Contains(out, "1 kept checkpoints agree") {
			t.Error(out)
		}
	})
	t.Run("a part of an export isn't left behind", func(t *testing.T) {
		at := changed(t, admin, `{"end":6}`+"\n", "")
		run(ExitUnavailable, "export", "--url", at, "--token-file", in("olga"), "--out", in("part.jsonl"))
		if _, err := os.Stat(in("part.jsonl")); !os.IsNotExist(err) {
			t.Errorf("the file: %v", err)
		}
	})
	t.Run("the shop has no role", func(t *testing.T) {
		write(t, in("shop"), "a-token\n")
		if _, errs := run(ExitCheck, "export", "--url", admin, "--token-file", in("shop")); !strings.Contains(errs, "viewer") {
			t.Error(errs)
		}
	})
	t.Run("the service of a store in use is asked", func(t *testing.T) {
		out, errs := run(ExitOK, "verify", "--store", "pebble:"+in("store"), "--keys", in("evidence.pub"), "--token-file", in("olga"))
		if !strings.Contains(out, "good  6 entries") || !strings.Contains(errs, "asking "+admin) {
			t.Errorf("%s%s", out, errs)
		}
		stop()
		out, _ = run(ExitOK, "verify", "--store", "pebble:"+in("store"), "--keys", in("evidence.pub"))
		if !strings.Contains(out, "good  6 entries") {
			t.Error(out)
		}
		run(ExitUsage, "verify", "--store", "pebble:"+in("store"), "--keys", in("evidence.pub"), "--token-file", in("olga"))
		run(ExitCheck, "export", "--store", "pebble:"+in("none"))
		if _, err := os.Stat(in("none")); !os.IsNotExist(err) {
			t.Errorf("looking made a store: %v", err)
		}
	})
}
