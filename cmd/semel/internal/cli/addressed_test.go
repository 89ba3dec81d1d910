package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/service/config"
)

func TestAnotherListenerIsNamed(t *testing.T) {
	data := httptest.NewServer(http.NotFoundHandler())
	defer data.Close()
	code, _, errs := semelWith(t, "", "records", "list", "--url", data.URL)
	if code != ExitUnavailable || !strings.Contains(errs, "that is not the admin listener") || !strings.Contains(errs, "status 404") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// TestWhereAServiceIsFound: a command that finds a directory in use asks the service, or
// names its address; SEMEL_URL and contexts say it once for all commands, and its other
// listener isn't taken for one without records.
func TestWhereAServiceIsFound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	data, admin, stop := servingUntil(t, "store: {url: 'pebble:"+dir+"'}\n")
	config := filepath.Join(t.TempDir(), "semel.yaml")
	write(t, config, "store: {url: 'pebble:"+dir+"'}\n")
	for _, args := range [][]string{
		{"store", "audit", "--config", config}, {"store", "status", "--config", config},
	} {
		code, _, errs := semelWith(t, "", args...)
		if code != ExitUnavailable || !strings.Contains(errs, dir+" is in use: stop the service that has it open, or name another with --store; while it runs, 'semel doctor --url "+admin+"' checks the store\n") ||
			strings.Contains(errs, "temporarily") {
			t.Errorf("%q: exit %d, %s", args, code, errs)
		}
	}
	for _, args := range [][]string{{"records", "list", "--json", "--store", "pebble:" + dir}, {"why", "order-1", "--config", config}} {
		code, _, errs := semelWith(t, "", args...)
		if args[0] == "records" && code != ExitOK || args[0] == "why" && code != ExitNotFound || !strings.Contains(errs, "asking "+admin+", the service that has "+dir+" open") {
			t.Errorf("%q: exit %d, %s", args, code, errs)
		}
	}
	if code, out, errs := semelWith(t, "", "doctor", "--url", admin); code != ExitOK || !strings.Contains(out, "durability") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	note := filepath.Join(dir, addressFile)
	written, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	// Where the process that wrote it is gone, nobody is asked.
	write(t, note, strings.Fields(string(written))[0]+" 2147483646\n")
	if code, _, errs := semelWith(t, "", "records", "list", "--store", "pebble:"+dir); code != ExitUnavailable || !strings.Contains(errs, "ask it with --url "+admin) {
		t.Errorf("exit %d, %s", code, errs)
	}
	write(t, note, string(written))
	for _, args := range [][]string{{"records", "list"}, {"why", "order-1"}} {
		code, _, errs := semelWith(t, "", append(args, "--url", data)...)
		if code != ExitUnavailable || !strings.Contains(errs, "that is not the admin listener") {
			t.Errorf("%q: exit %d, %s", args, code, errs)
		}
	}
	t.Setenv("SEMEL_URL", admin)
	if code, out, errs := semelWith(t, "", "records", "list", "--json"); code != ExitOK {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if code, _, errs := semelWith(t, "", "why", "order-1"); code != ExitNotFound {
		t.Errorf("exit %d, %s", code, errs)
	}
	t.Setenv("SEMEL_URL", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, "t\n")
	for _, args := range []string{"context add prod --url " + admin, "context add other --url http://127.0.0.1:1 --token-file " + token, "records list", "records list --context prod", "context use other", "context list", "context use prod"} {
		code, out, errs := semelWith(t, "", strings.Fields(args)...)
		if code != ExitOK || args == "context list" && (!strings.Contains(out, "*  other  http://127.0.0.1:1") || !strings.Contains(out, token)) {
			t.Errorf("%s: exit %d, %s%s", args, code, out, errs)
		}
	}
	for args, want := range map[string]string{
		"records list --context prid":                       "did you mean prod?",
		"records list --context prod --url " + admin:        "--context excludes --url",
		"context use none":                                  "there are other, prod",
		"context add x --url semel.example":                 "isn't one that begins with http",
		"context add x --url http://x --token-file /none/x": "--token-file: ",
	} {
		if code, out, errs := semelWith(t, "", strings.Fields(args)...); code != ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %s%s", args, code, out, errs)
		}
	}
	t.Setenv("SEMEL_CONTEXT", "other")
	if code, _, errs := semelWith(t, "", "records", "list"); code == ExitOK {
		t.Errorf("SEMEL_CONTEXT isn't used: %s", errs)
	}
	t.Setenv("SEMEL_CONTEXT", "")
	if code, _, errs := semelWith(t, "", "context", "remove", "prod"); code != ExitOK {
		t.Errorf("exit %d, %s", code, errs)
	}
	stop()
	if code, _, errs := semelWith(t, "", "records", "list", "--store", "pebble:"+dir); code != ExitOK {
		t.Errorf("a store that is named counts before SEMEL_URL: exit %d, %s", code, errs)
	}
	if _, err := os.Stat(filepath.Join(dir, addressFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a service that has stopped leaves its address: %v", err)
	}
}

func TestConfigExplainTakesAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "n1.yaml", goodConfig)
	for _, args := range [][]string{{"n1.yaml", "store.url"}, {"--config", "n1.yaml", "store.url"}} {
		code, out, errs := semelWith(t, "", append([]string{"config", "explain"}, args...)...)
		if code != ExitOK || !strings.Contains(out, "n1.yaml:1:14") {
			t.Errorf("%q: exit %d, %s%s", args, code, out, errs)
		}
	}
	if code, out, errs := semelWith(t, "", "config", "explain", "n1.yaml"); code != ExitOK || !strings.Contains(out, "listen.address") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	for _, args := range [][]string{{"n1.yaml", "store", "listen"}, {"--config", "n1.yaml", "n1.yaml"}, {"n2.yaml"}} {
		if code, _, _ := semelWith(t, "", append([]string{"config", "explain"}, args...)...); code != ExitUsage {
			t.Errorf("%q: exit %d", args, code)
		}
	}
}

func TestTheLogIsReadable(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		log, err := newLogger(&out, config.Log{Level: "info", Format: format})
		if err != nil {
			t.Fatal(err)
		}
		log.Info("ended", slog.Duration("took", 46822218), slog.Duration("waited", 0), slog.Duration("grace", 30*time.Second), slog.Duration("tiny", 1500), slog.String("reason", ""), slog.String("by", "holder"))
		if format == "text" {
			if text := out.String(); !strings.HasSuffix(text, "msg=ended took=46.822ms waited=0s grace=30s tiny=2µs by=holder\n") {
				t.Errorf("%q", text)
			}
			continue
		}
		line := map[string]any{}
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if _, empty := line["reason"]; empty || line["took"] != "46.822ms" || line["grace"] != "30s" || line["waited"] != "0s" || line["by"] != "holder" || line["msg"] != "ended" {
			t.Errorf("%s", &out)
		}
	}
}

func TestAges(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0ms", 42 * time.Millisecond: "42ms", 59 * time.Second: "59s", 90 * time.Minute: "1h", 47 * time.Hour: "47h", 49 * time.Hour: "2d"} {
		if got := ageOf(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
