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

	"github.com/semelhq/semel/server/config"
)

func TestAnotherListenerIsNamed(t *testing.T) {
	data := httptest.NewServer(http.NotFoundHandler())
	defer data.Close()
	code, _, errs := semelWith(t, "", "records", "list", "--url", data.URL)
	if code != ExitUnavailable || !strings.Contains(errs, "that is not the admin listener") || !strings.Contains(errs, "status 404") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// TestWhereAServiceIsFound: a command that finds a directory in use names the address of
// the service, SEMEL_URL says it once for all commands, and its other listener isn't
// taken for one without records.
func TestWhereAServiceIsFound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	data, admin, stop := servingUntil(t, "store: {url: 'pebble:"+dir+"'}\n")
	config := filepath.Join(t.TempDir(), "semel.yaml")
	write(t, config, "store: {url: 'pebble:"+dir+"'}\n")
	for _, args := range [][]string{
		{"records", "list", "--store", "pebble:" + dir}, {"why", "order-1", "--config", config},
		{"evidence", "show", "order-1", "--config", config}, {"store", "status", "--config", config},
	} {
		code, _, errs := semelWith(t, "", args...)
		if code != ExitUnavailable || !strings.Contains(errs, dir+" is in use: stop the service") || !strings.Contains(errs, admin) ||
			strings.Contains(errs, "temporarily") || strings.Contains(errs, "--url") != (args[0] == "records" || args[0] == "why") {
			t.Errorf("%q: exit %d, %s", args, code, errs)
		}
	}
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
	for _, args := range [][]string{{"n1.yaml", "store.url"}, {"--file", "n1.yaml", "store.url"}} {
		code, out, errs := semelWith(t, "", append([]string{"config", "explain"}, args...)...)
		if code != ExitOK || !strings.Contains(out, "n1.yaml:1:14") {
			t.Errorf("%q: exit %d, %s%s", args, code, out, errs)
		}
	}
	if code, out, errs := semelWith(t, "", "config", "explain", "n1.yaml"); code != ExitOK || !strings.Contains(out, "listen.address") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	for _, args := range [][]string{{"n1.yaml", "store", "listen"}, {"--file", "n1.yaml", "n1.yaml"}, {"n2.yaml"}} {
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
