package cli

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
