package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/internal/strictyaml"
)

const goodConfig = "store: {url: 'memory:'}\nroutes:\n  - {match: POST /x, upstream: 'http://h', mode: shadow}\n"

const badConfig = "store: {url: 'memry:'}\nlisten:\n  adress: 127.0.0.1:1\n"

const badConfigErrors = `standard input:1:14: store.url: the value names no known kind of store; did you mean memory:?
    1 | store: {url: '********
      |              ^
standard input:3:3: listen.adress: there is no setting "adress"; did you mean address?
    3 |   adress: 127.0.0.1:1
      |   ^
`

func TestConfigValidate(t *testing.T) {
	t.Run("a good file is valid", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "semel.yaml")
		if err := os.WriteFile(file, []byte(goodConfig), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := semelWith(t, "", "config", "validate", file)
		if code != ExitOK || out != "valid\n" || errs != "" {
			t.Errorf("exit %d, %q, %q", code, out, errs)
		}
	})
	t.Run("no file is valid, and so is an empty one", func(t *testing.T) {
		for _, args := range [][]string{{"config", "validate"}, {"config", "validate", "-"}} {
			if code, out, errs := semelWith(t, "", args...); code != ExitOK || out != map[int]string{2: "valid: the settings of a service without a file\n", 3: "valid\n"}[len(args)] || errs != "" {
				t.Errorf("%q: exit %d, %q, %q", args, code, out, errs)
			}
		}
	})
	t.Run("every mistake is reported and the exit code is 1", func(t *testing.T) {
		code, out, errs := semelWith(t, badConfig, "config", "validate", "-")
		if code != ExitCheck || out != "" || errs != badConfigErrors {
			t.Errorf("exit %d, %q, %q", code, out, errs)
		}
	})
	t.Run("as JSON the mistakes are the data", func(t *testing.T) {
		code, out, errs := semelWith(t, badConfig, "config", "validate", "--json", "-")
		var got struct {
			Valid  bool
			Errors []struct {
				File, Path, Message, Suggestion, Source string
				Line, Column                            int
			}
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != ExitCheck || errs != "" {
			t.Fatalf("exit %d, %v, %q, %s", code, err, errs, out)
		}
		if e := got.Errors; got.Valid || len(e) != 2 || e[0].Line != 1 || e[0].Column != 14 || e[1].Path != "listen.adress" || e[1].Suggestion != "did you mean address?" || e[1].Source != "  adress: 127.0.0.1:1" {
			t.Errorf("%+v", got)
		}
		wantFields(t, out, "valid", "errors")
	})
	t.Run("as JSON a valid one has an empty list", func(t *testing.T) {
		code, out, _ := semelWith(t, goodConfig, "config", "validate", "--json", "-")
		if code != ExitOK || out != "{\n  \"valid\": true,\n  \"errors\": []\n}\n" {
			t.Errorf("exit %d, %q", code, out)
		}
	})
	t.Run("an identity that events may share is a warning", func(t *testing.T) {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"secret": "a gateway's secret",
			"gateway.yaml": `{name: gateway, horizon: 1d, signature: {in: "{header:X-Sign}", encoding: hex},
  events: [{id: ["{body:transaction}", "{body:event}"], type: "{body:event}"}]}`,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		config := fmt.Sprintf("webhooks: [{path: /hook, source: %[1]s/gateway.yaml, secret_files: [%[1]s/secret], upstream: 'http://127.0.0.1:1', tenant: a}]\n", dir)
		code, out, errs := semelWith(t, config, "config", "validate", "-")
		if code != ExitOK || out != "valid\n" || !strings.HasPrefix(errs, "warning: webhooks[0].source: ") || !strings.Contains(errs, "partial refunds") {
			t.Errorf("exit %d, %q, %q", code, out, errs)
		}
		_, out, _ = semelWith(t, config, "config", "validate", "--json", "-")
		wantFields(t, out, "valid", "errors", "warnings")
	})
	t.Run("a file that is not there is a wrong command line", func(t *testing.T) {
		code, _, errs := semelWith(t, "", "config", "validate", "no-such.yaml")
		if code != ExitUsage || !strings.HasPrefix(errs, "semel: there is no file no-such.yaml\n") {
			t.Errorf("exit %d, %q", code, errs)
		}
	})
	t.Run("a second file is refused", func(t *testing.T) {
		if code, _, errs := semelWith(t, "", "config", "validate", "a", "b"); code != ExitUsage || !strings.Contains(errs, `unexpected argument "b"`) {
			t.Errorf("exit %d, %q", code, errs)
		}
	})
	t.Run("the environment is checked too", func(t *testing.T) {
		t.Setenv("SEMEL_LIMITS_CONNECTIONS", "many")
		code, _, errs := semelWith(t, goodConfig, "config", "validate", "-")
		if code != ExitCheck || errs != "env SEMEL_LIMITS_CONNECTIONS: limits.connections: \"many\" is not a whole number; write digits, such as 1000\n" {
			t.Errorf("exit %d, %q", code, errs)
		}
	})
}

func TestConfigPrint(t *testing.T) {
	t.Run("what it prints is valid and prints the same", func(t *testing.T) {
		code, out, errs := semelWith(t, goodConfig, "config", "print", "-")
		if code != ExitOK || errs != "" || !strings.Contains(out, "  mode: shadow\n") || !strings.Contains(out, "  header_bytes: 32KiB\n") {
			t.Fatalf("exit %d, %q, %s", code, errs, out)
		}
		if _, again, errs := semelWith(t, out, "config", "print", "-"); again != out || errs != "" {
			t.Errorf("%q, %s", errs, again)
		}
	})
	t.Run("the JSON has the names of the YAML", func(t *testing.T) {
		_, out, _ := semelWith(t, goodConfig, "config", "print", "--json", "-")
		wantFields(t, out, "listen", "admin", "store", "api", "operations", "routes", "limits", "quotas", "archive", "evidence", "purge", "metrics", "log", "traces")
	})
	t.Run("a mistake is reported instead", func(t *testing.T) {
		if code, out, errs := semelWith(t, badConfig, "config", "print", "-"); code != ExitCheck || out != "" || errs != badConfigErrors {
			t.Errorf("exit %d, %q, %q", code, out, errs)
		}
	})
}

func TestConfigExplain(t *testing.T) {
	t.Run("it says where values come from", func(t *testing.T) {
		t.Setenv("SEMEL_STORE_PROFILE", "standard")
		code, out, errs := semelWith(t, goodConfig, "config", "explain", "--config", "-", "store")
		if code != ExitOK || errs != "" {
			t.Fatalf("exit %d, %q", code, errs)
		}
		for _, want := range []string{"standard input:1:14", "env SEMEL_STORE_PROFILE", "default"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
		}
	})
	t.Run("the JSON has what the help says", func(t *testing.T) {
		_, out, _ := semelWith(t, "", "config", "explain", "--json", "log.level")
		var list []json.RawMessage
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 {
			t.Fatalf("%v, %s", err, out)
		}
		wantFields(t, string(list[0]), "path", "value", "origin", "env", "description", "allowed")
	})
	t.Run("a wrong path is answered with a near one", func(t *testing.T) {
		if code, _, errs := semelWith(t, "", "config", "explain", "log.levle"); code != ExitUsage || !strings.Contains(errs, "did you mean log.level?") {
			t.Errorf("exit %d, %q", code, errs)
		}
	})
}

func TestConfigSchema(t *testing.T) {
	t.Run("it is JSON Schema with every section", func(t *testing.T) {
		code, out, errs := semelWith(t, "", "config", "schema")
		var schema struct {
			Schema     string `json:"$schema"`
			Properties map[string]any
		}
		if err := json.Unmarshal([]byte(out), &schema); err != nil || code != ExitOK || errs != "" {
			t.Fatalf("exit %d, %v, %q", code, err, errs)
		}
		if schema.Schema != "https://json-schema.org/draft/2020-12/schema" || len(schema.Properties) != len(strictyaml.Fields(reflect.TypeFor[config.Config]())) {
			t.Errorf("the schema %q has %d sections", schema.Schema, len(schema.Properties))
		}
	})
}

func TestConfigHelp(t *testing.T) {
	for _, args := range [][]string{{"config"}, {"config", "validate"}, {"config", "print"}, {"config", "explain"}, {"config", "schema"}} {
		name := strings.Join(append([]string{"semel"}, args...), "-")
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
