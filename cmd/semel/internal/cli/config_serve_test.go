package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatValidateAcceptsServeAccepts: the two agree on every file of a corpus, and on the
// places of its mistakes.
func TestWhatValidateAcceptsServeAccepts(t *testing.T) {
	const base = "listen: {address: '127.0.0.1:0'}\nadmin: {address: '127.0.0.1:0'}\n"
	const memory = base + "store: {url: 'memory:'}\n"
	const callers = "auth:\n  tokens:\n    - {name: a, token_file: token}\n"
	const log = "evidence: {key_file: keys}\n"
	const registry = "version: 1\ncommands:\n  - entity: order\n    action: cancel\n    handler: {url: 'http://127.0.0.1:1/'}\n"
	for _, test := range []struct {
		name   string
		config string
		files  map[string]string
		at     []string // the places that are named; none: the file is good
	}{
		{name: "a good file", config: memory + "routes:\n  - {match: POST /x, upstream: 'http://h'}\n"},
		{name: "a good registry", config: memory + callers + log + "commands: {registry: commands.yaml}\n", files: map[string]string{"commands.yaml": registry}},
		{name: "a good archive", config: memory + "archive: {dir: new/archive}\noperations:\n  - {name: a, archive: true}\n"},
		{
			name: "two mistakes in the registry", config: memory + callers + log + "commands: {registry: commands.yaml}\n",
			files: map[string]string{"commands.yaml": registry + "    clas: I1\n  - {entity: Order, action: pay, handler: {func: charge}}\n"},
			at:    []string{"commands.yaml:6:5: ", "commands.yaml:7:"},
		},
		{name: "a registry that is not there", config: memory + callers + log + "commands: {registry: commands.yaml}\n", at: []string{"semel.yaml:8:22: commands.registry: "}},
		{name: "a handler that a service hasn't", config: memory + callers + log + "commands: {registry: commands.yaml}\n", files: map[string]string{"commands.yaml": strings.Replace(registry, "{url: 'http://127.0.0.1:1/'}", "{func: charge}", 1)}, at: []string{"commands.yaml:5:"}},
		{name: "commands on a store that keeps no evidence", config: base + "store: {url: 'redis://127.0.0.1:1'}\n" + callers + log + "commands: {registry: commands.yaml}\n", files: map[string]string{"commands.yaml": registry}, at: []string{"semel.yaml:8:22: commands.registry: "}},
		{name: "evidence on such a store", config: base + "store: {url: 'redis://127.0.0.1:1'}\napi: 'off'\n" + log + "operations:\n  - {name: a, evidence: changes}\n", at: []string{"demands evidence"}},
		{name: "keys of the log that are not there", config: memory + "api: 'off'\nevidence: {key_file: none}\n", at: []string{"semel.yaml:5:22: evidence.key_file: "}},
		{name: "keys of the log that are none", config: memory + "api: 'off'\nevidence: {key_file: token}\n", at: []string{"semel.yaml:5:22: evidence.key_file: "}},
		{name: "a checkpoint directory that is a file", config: memory + "api: 'off'\nevidence: {key_file: keys, checkpoint_dir: token}\n", at: []string{"semel.yaml:5:44: evidence.checkpoint_dir: "}},
		{name: "no place for the last checkpoint", config: memory + "api: 'off'\nevidence: {key_file: keys, signed_file: none/signed}\n", at: []string{"semel.yaml:5:41: evidence.signed_file: "}},
		{name: "an archive that can't exist", config: memory + "archive: {dir: token/archive}\noperations:\n  - {name: a, archive: true}\n", at: []string{"semel.yaml:4:16: archive.dir: "}},
		{name: "a store that can't exist", config: base + "store: {url: 'pebble:token/store'}\n", at: []string{"semel.yaml:3:14: store.url: "}},
		{name: "a certificate that is not there", config: memory + "listen: {address: '127.0.0.1:0', tls: {cert: a, key: b}}\n", at: []string{"semel.yaml:3:39: listen.tls: "}},
		{name: "keys of an issuer that are not there", config: memory + "auth:\n  jwt:\n    - {issuer: 'https://i', audience: a, keys_file: none}\n", at: []string{"auth"}},
		{name: "a misspelt source beside other mistakes", config: memory + "webhooks:\n  - {name: g, path: /w, source: githb, upstream: 'ftp://h', secret_files: [none]}\n", at: []string{"webhooks[0].upstream: ", "webhooks[0].source: ", "did you mean github?"}},
		{name: "a schema that is none", config: memory + "forrst:\n  - path: /f\n    upstream: 'http://h'\n    functions:\n      - {name: a, versions: [1.0.0], operation: default, arguments: [{file: token}]}\n", at: []string{"arguments[0].file: "}},
		{name: "routes that can't stand together", config: memory + "routes:\n  - {match: 'POST /a/{x}/b', upstream: 'http://h'}\n  - {match: 'POST /a/b/{y}', upstream: 'http://h'}\n", at: []string{"semel.yaml:6:"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if code, _, errs := semelWith(t, "", "evidence", "keygen", "--origin", "example.com/log", "--out", "keys"); code != ExitOK {
				t.Fatal(errs)
			}
			test.config = strings.Replace(test.config, "listen: {address: '127.0.0.1:0'}\nadmin", "admin", strings.Count(test.config, "listen:")-1)
			for name, text := range map[string]string{"semel.yaml": test.config, "token": "0123456789abcdef0123456789abcdef"} {
				write(t, name, text)
			}
			for name, text := range test.files {
				write(t, name, text)
			}
			before := tree(t)
			checked, out, faults := semelWith(t, "", "config", "validate", "semel.yaml")
			if (checked == ExitOK) != (len(test.at) == 0) || (out == "valid\n") != (len(test.at) == 0) {
				t.Errorf("validate: exit %d, %q, %s", checked, out, faults)
			}
			for _, place := range test.at {
				if !strings.Contains(faults, place) {
					t.Errorf("%q is not in\n%s", place, faults)
				}
			}
			if after := tree(t); after != before {
				t.Errorf("validate changed files:\n%s\nbefore:\n%s", after, before)
			}
			served, _, errs := semelWith(t, "", "serve", "--config", "semel.yaml", "--until-eof")
			if served != checked {
				t.Errorf("validate: exit %d, serve: exit %d\n%s\n%s", checked, served, faults, errs)
			}
			if checked != ExitOK && errs != faults {
				t.Errorf("validate says\n%s\nserve says\n%s", faults, errs)
			}
		})
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.FromSlash(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tree lists the files of the current directory.
func tree(t *testing.T) (list string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err == nil {
			list += fmt.Sprintln(path, d.IsDir())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestRecordedConfigurationsAreJudgedOnce: validate and serve agree on all recorded configurations
// and on 30 broken ones: whatever the one refuses the other refuses with the same words, and what
// validate accepts serve starts, or gives up only because nothing answers where its store is.
func TestRecordedConfigurationsAreJudgedOnce(t *testing.T) {
	recorded, err := filepath.Abs("../../../../internal/service/config/testdata")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, kind := range []string{"good", "bad"} {
		files, err := filepath.Glob(filepath.Join(recorded, kind, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatal(kind, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[kind+"/"+filepath.Base(file)] = string(text)
		}
	}
	beside := map[string]string{} // what recorded files name
	files, err := filepath.Glob(filepath.Join(recorded, "*"))
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			beside["testdata/"+filepath.Base(file)] = string(text)
		}
	}
	if err != nil || len(beside) == 0 {
		t.Fatal(files, err)
	}
	for i, url := range brokenStores {
		texts[fmt.Sprintf("store %02d", i)] = fmt.Sprintf("store: {url: '%s'}\n", url)
	}
	for _, text := range mistakenConfigs {
		texts[text] = text + "\n"
	}
	accepted, refused := 0, 0
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.Mkdir("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			for name, text := range beside {
				write(t, name, text)
			}
			write(t, "semel.yaml", text)
			write(t, "token", "0123456789abcdef0123456789abcdef\n")
			checked, _, faults := semelWith(t, "", "config", "validate", "semel.yaml")
			if checked == ExitOK {
				// Recorded files have addresses that this machine needn't have, and ports that
				// somebody else may listen on.
				t.Setenv("SEMEL_LISTEN_ADDRESS", "127.0.0.1:0")
				t.Setenv("SEMEL_ADMIN_ADDRESS", "127.0.0.1:0")
			}
			served, errs := serveOnce(t)
			if checked != ExitOK {
				refused++
				if served == ExitOK || errs != faults {
					t.Errorf("validate says\n%s\nserve, exit %d, says\n%s", faults, served, errs)
				}
				return
			}
			accepted++
			if served != ExitOK && !strings.Contains(errs, "Start what should answer there") {
				t.Errorf("validate accepts it, and serve, exit %d, says\n%s", served, errs)
			}
			for _, url := range brokenStores {
				if strings.Contains(text, "'"+url+"'") {
					t.Errorf("both accept %s", url)
				}
			}
		})
	}
	if accepted < 2 || refused < len(mistakenConfigs)+len(brokenStores) {
		t.Errorf("%d are accepted, %d refused", accepted, refused)
	}
}

// serveOnce runs the service with semel.yaml until it listens.
func serveOnce(t *testing.T) (code int, stderr string) {
	t.Helper()
	stdin, end := io.Pipe()
	defer end.Close()
	var errs bytes.Buffer
	listens := &stopsAt{stop: func() { end.Close() }}
	code = Run(t.Context(), []string{"serve", "--config", "semel.yaml", "--json", "--until-eof"}, stdin, listens, &errs)
	return code, errs.String()
}

// brokenStores are URLs that no store can have, whatever answers there.
var brokenStores = []string{
	"postgres://u@h/db?sslmode=maybe",
	"postgres://u@h/db?pool_max_conns=1",
	"postgres://u@h/db?pool_max_conns=many",
	"postgres://u@h/db?connect_timeout=soon",
	"postgres://u@h/db?target_session_attrs=best",
	"postgres://u@h/db?sslmode=verify-full&sslrootcert=none.pem",
	"postgres://u@h/db?pool_max_conn_lifetime=long",
	"postgres://u@h:port/db",
	"postgres://u@h:99999/db",
	"postgresql://",
	"redis://h/x",
	"redis://h/-1",
	"redis://h:port",
	"redis://",
	"redis://h?db=1",
	"redis-cluster://h/1",
	"redis-sentinel://h",
	"redis-sentinel://h/mymaster/x",
	"redis+unix://h/redis.sock",
	"redis+unix://",
	"rediss://h?sslrootcert=none.pem",
	"rediss://h?sslcert=none.pem",
	"rediss+unix:///redis.sock",
	"redis-ring://h",
	"valkey://h/x",
	"pebble:",
	"pebble:token",
	"pebble:token/store",
	"memory:x",
	"./data",
}
