package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/rig/clause"
)

const idsEnvelope = `{"command_id":"c-1","tenant_id":"acme","actor_id":"retrier","effective_actor_id":"u-7",
  "intent":{"entity":"order","action":"cancel","target":"o-42"},"args":{"reason":" Too late","nonce":"x"}}`

const idsRegistry = `version: 1
commands:
  - entity: order
    action: cancel
    command_kind: destructive
    binding: {principal: effective_actor, acting: ['orders:retry']}
    args:
      normalise:
        - {path: reason, rules: [trim, lower]}
      strip: [nonce]
    confirmation: {ttl: 2m, step_up: totp}
    rights: {execute: ['orders:cancel']}
    handler: {func: cancelOrder}
`

// inFile writes a file for one test.
func inFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestIDsHelp(t *testing.T) {
	for _, name := range []string{"", "lint", "key", "explain", "schema"} {
		t.Run("the help of semel ids "+name+" is as recorded", func(t *testing.T) {
			args := append([]string{"ids"}, strings.Fields(name)...)
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
		})
	}
}

func TestIDsKey(t *testing.T) {
	clause.Proves(t, "IDS-VII.1", "IDS-VII.5")
	registry := inFile(t, "registry.yaml", idsRegistry)
	for _, test := range []struct {
		name      string
		args      []string
		canonical string
	}{
		{"without a registry", nil, `{"args":{"reason":" Too late"},"effective_actor_id":"u-7","intent":{"action":"cancel","entity":"order","target":"o-42"},"tenant_id":"acme"}`},
		{"with one", []string{"--registry", registry}, `{"args":{"reason":"too late"},"command_kind":"destructive","effective_actor_id":"u-7","intent":{"action":"cancel","entity":"order","target":"o-42"},"tenant_id":"acme"}`},
	} {
		t.Run(test.name+" the key is that of the canonical form", func(t *testing.T) {
			code, out, errs := semelWith(t, idsEnvelope, append([]string{"ids", "key", "--json"}, test.args...)...)
			if code != ExitOK || errs != "" {
				t.Fatalf("exit %d, %s", code, errs)
			}
			wantFields(t, out, "canonical", "idempotency_key")
			var got struct {
				Canonical string `json:"canonical"`
				Key       string `json:"idempotency_key"`
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256([]byte(test.canonical))
			if want := "ids1:" + hex.EncodeToString(sum[:]); got.Canonical != test.canonical || got.Key != want {
				t.Errorf("%s\n%s, want %s", got.Canonical, got.Key, want)
			}
			if _, out, _ := semelWith(t, idsEnvelope, append([]string{"ids", "key"}, test.args...)...); out != got.Key+"\n" {
				t.Errorf("without --json it prints %q", out)
			}
		})
	}
	t.Run("an envelope that is refused has problems and exit code 1", func(t *testing.T) {
		code, out, errs := semelWith(t, `{"tenant_id":"t","actor_id":"a","intent":{"entity":"e"},"x":1}`, "ids", "key", "--json")
		want := "standard input: invalid_envelope: intent.action: it is missing\nstandard input: invalid_envelope: x: an envelope has no such member\n"
		if code != ExitCheck || errs != want || !strings.Contains(out, `"path": "intent.action"`) {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
		wantFields(t, out, "problems")
	})
	t.Run("a registry that is wrong is said to be, with its place", func(t *testing.T) {
		bad := inFile(t, "bad.yaml", "version: 1\ncommands:\n  - entity: order\n    action: cancel\n    class: I3\n    handler: {func: a}\n")
		code, out, errs := semelWith(t, idsEnvelope, "ids", "key", "--registry", bad)
		if code != ExitCheck || out != "" || !strings.Contains(errs, "bad.yaml:5:12: commands[0].class: class I3 has no shield") {
			t.Errorf("exit %d, %s, %s", code, out, errs)
		}
	})
	for _, test := range []struct{ name, args, want string }{
		{"a file that is not there", "--envelope no-such-file", "semel: there is no file no-such-file\n" + hintFor(missing(""))},
		{"both from standard input", "--registry -", "semel: --registry and --envelope can't both be standard input\n"},
		{"an argument", "envelope.json", "semel: unexpected argument \"envelope.json\": write semel ids key [flags]\n"},
	} {
		t.Run(test.name+" is a wrong command line", func(t *testing.T) {
			code, _, errs := semelWith(t, idsEnvelope, append([]string{"ids", "key"}, strings.Fields(test.args)...)...)
			if want := test.want + "Run 'semel ids key --help' for usage.\n"; code != ExitUsage || errs != want {
				t.Errorf("exit %d, %q, want %q", code, errs, want)
			}
		})
	}
}

func TestIDsExplain(t *testing.T) {
	registry := inFile(t, "registry.yaml", idsRegistry)
	t.Run("it says what is in the key, what is not, and how the command is protected", func(t *testing.T) {
		code, out, errs := semelWith(t, idsEnvelope, "ids", "explain", "--registry", registry)
		if code != ExitOK || errs != "" {
			t.Fatalf("exit %d, %s", code, errs)
		}
		golden(t, "ids-explain.txt", out)
	})
	t.Run("its JSON has the documented fields", func(t *testing.T) {
		_, out, _ := semelWith(t, idsEnvelope, "ids", "explain", "--json")
		wantFields(t, out, "command", "principal", "entered", "stripped", "canonical", "idempotency_key")
		_, out, _ = semelWith(t, idsEnvelope, "ids", "explain", "--json", "--registry", registry)
		wantFields(t, out, "command", "principal", "entered", "stripped", "canonical", "idempotency_key", "policy")
	})
}

func TestIDsLint(t *testing.T) {
	clause.Proves(t, "IDS-VI.1", "IDS-XI.1")
	good := inFile(t, "registry.yaml", idsRegistry)
	t.Run("a registry that is right is listed with its policies", func(t *testing.T) {
		code, out, errs := semelWith(t, "", "ids", "lint", good)
		want := good + ": ok: order.cancel: I1, window 1d, confirmed within 2m with totp, bound to effective_actor, after a failure replay, evidence decisions\n"
		if code != ExitOK || out != want || errs != "" {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
	})
	t.Run("a destructive command without a confirmation is warned about", func(t *testing.T) {
		clause.Proves(t, "IDS-X.5")
		for text, warned := range map[string]bool{"command_kind: destructive": true, "command_kind: administrative": true, "command_kind: note": false, "command_kind: destructive, confirmation: {}": false} {
			code, out, errs := semelWith(t, "version: 1\ncommands:\n  - {entity: account, action: delete, "+text+", handler: {func: a}}\n", "ids", "lint", "-")
			if code != ExitOK || !strings.Contains(out, "ok: account.delete") || strings.Contains(errs, "account.delete is ") != warned {
				t.Errorf("%s: exit %d, %s%s", text, code, out, errs)
			}
		}
	})
	t.Run("functions that are not there are found where they are known", func(t *testing.T) {
		code, out, _ := semelWith(t, "", "ids", "lint", good, "--functions", "totp")
		if code != ExitCheck || !strings.Contains(out, `there is no handler "cancelOrder"; there are totp`) {
			t.Errorf("exit %d, %s", code, out)
		}
		if code, out, _ := semelWith(t, "", "ids", "lint", good, "--functions", "totp,cancelOrder"); code != ExitOK {
			t.Errorf("exit %d, %s", code, out)
		}
	})
	t.Run("what is wrong comes with its place, in JSON too", func(t *testing.T) {
		const bad = "version: 1\ncommands:\n  - entity: order\n    action: cancel\n    class: I3\n    window: 1h\n"
		code, out, _ := semelWith(t, bad, "ids", "lint", "-", "--json")
		wantFields(t, out, "ok", "commands", "problems")
		var got struct {
			OK       bool
			Problems []struct {
				File, Path, Command string
				Line, Column        int
			}
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if code != ExitCheck || got.OK || len(got.Problems) != 3 || got.Problems[1].Path != "commands[0].class" || got.Problems[1].Line != 5 || got.Problems[1].Column != 12 || got.Problems[1].Command != "order.cancel" || got.Problems[1].File != "standard input" {
			t.Errorf("exit %d, %+v", code, got)
		}
	})
	t.Run("no file is a wrong command line", func(t *testing.T) {
		if code, _, errs := semelWith(t, "", "ids", "lint"); code != ExitUsage || !strings.Contains(errs, "which registry?") {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
}

func TestIDsSchema(t *testing.T) {
	clause.Proves(t, "IDS-VI.6")
	for member, args := range map[string][]string{"actor_id": nil, "commands": {"--registry"}} {
		code, out, errs := semelWith(t, "", append([]string{"ids", "schema"}, args...)...)
		var schema struct {
			Schema     string `json:"$schema"`
			Properties map[string]any
		}
		if err := json.Unmarshal([]byte(out), &schema); code != ExitOK || err != nil || schema.Schema != "https://json-schema.org/draft/2020-12/schema" || schema.Properties[member] == nil {
			t.Errorf("exit %d, %v, %s%s", code, err, out, errs)
		}
	}
}

func TestIDsList(t *testing.T) {
	clause.Proves(t, "IDS-VI.5")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer.Mark(w.Header(), peer.Admin)
		if r.URL.Path != "/v1/operations" {
			t.Errorf("asked for %s", r.URL)
		}
		_, _ = io.WriteString(w, `{"operations":[{"name":"default","class":"I1","window_ms":1},
			{"name":"order.refund","class":"I3","window_ms":604800000,"financial":true,"shields":["S1","S4"],"confirms":true,"command":{"critical":true,"justification":"it\u001b[31m is so","binding":{"principal":"actor"}}}]}`)
	}))
	defer srv.Close()
	code, out, errs := semelWith(t, "", "ids", "list", "--url", srv.URL)
	if lines := strings.Split(out, "\n"); code != ExitOK || len(lines) != 3 || strings.Join(strings.Fields(lines[1]), " ") != `order.refund I3 7d S1,S4 financial,critical actor yes "it\x1b[31m is so"` {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	code, out, errs = semelWith(t, "", "ids", "list", "--url", srv.URL, "--json")
	var list []map[string]any
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != ExitOK || len(list) != 1 || list[0]["command"] == nil || list[0]["window_ms"] == nil {
		t.Errorf("exit %d, %v, %s%s", code, err, out, errs)
	}
}

func TestIDsOutputIsPlain(t *testing.T) {
	// \u009b begins a sequence that terminals obey.
	const envelope = `{"tenant_id":"t","actor_id":"a\u009b2J","intent":{"entity":"e\u009b2J","action":"x"},"args":{"n\u009b2J":{"nonce":1}}}`
	_, explained, _ := semelWith(t, envelope, "ids", "explain")
	_, _, refused := semelWith(t, `{"\u009b2J":1}`, "ids", "key")
	if strings.ContainsRune(explained+refused, 0x9b) || !strings.Contains(explained, "canonical") || !strings.Contains(refused, "no such member") {
		t.Errorf("%q, %q", explained, refused)
	}
}
