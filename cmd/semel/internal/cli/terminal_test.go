package cli

import (
	"encoding/json"
	"fmt"
	"github.com/semelhq/semel/internal/rig/stage"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tasks are what a stranger wants, by the sections of docs/terminal.md that do it, and the
// commands that each may take at most.
var tasks = []string{"Was somebody charged twice?", "Why is a call held?", "Settle it", "Who settled it?", "Which operation repeats most?", "Is the log intact?"}

const mostCommands = 2

// seeded is a service in a directory, to which something has happened that people ask about:
// an order was paid twice, under two keys; the upstream broke off while others were; and one
// was delivered again and again.
func seeded(t *testing.T) (dir, admin string) {
	t.Helper()
	dir = t.TempDir()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "broken") {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"receipt":"r-%d"}`, len(body))
	}))
	t.Cleanup(upstream.Close)
	code, public, errs := semelWith(t, "", "evidence", "keygen", "--origin", "example.com/semel", "--out", filepath.Join(dir, "evidence.key"))
	if code != ExitOK {
		t.Fatal(errs)
	}
	write(t, filepath.Join(dir, "evidence.pub"), public)
	data, admin, _ := servingUntil(t, fmt.Sprintf(`
api: 'off'
store: {url: 'pebble:%[1]s/semel-data'}
evidence: {key_file: '%[1]s/evidence.key', every: 100ms, checkpoint_dir: '%[1]s/checkpoints'}
operations: [{name: payments.charge, evidence: durable}, {name: orders.place, evidence: durable}]
routes:
  - {match: POST /payments, upstream: '%[2]s', operation: payments.charge, key: required, attributes: {order: json:/order_id}}
  - {match: POST /orders, upstream: '%[2]s', operation: orders.place, key: required, attributes: {order: json:/order_id}}
`, dir, upstream.URL))
	deliver := func(path, key, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, data+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
		resp, err := stage.Direct.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	for range 3 {
		deliver("/payments", "pay-9911", `{"order_id":"9911","amount":1200}`)
	}
	deliver("/payments", "pay-9911-again", `{"order_id":"9911","amount":1200}`)
	for range 7 {
		deliver("/orders", "place-9911", `{"order_id":"9911"}`)
	}
	for _, order := range []string{"9912", "9913", "9914"} {
		deliver("/payments", "pay-"+order, `{"order_id":"`+order+`","card":"broken"}`)
	}
	untilCounted(t, admin, 14)
	return dir, admin
}

// untilCounted waits until the service's figures, which are written behind, have so many deliveries.
func untilCounted(t *testing.T, admin string, deliveries int) {
	t.Helper()
	for total := 0; total < deliveries; {
		resp, err := http.Get(admin + "/v1/figures")
		if err != nil {
			t.Fatal(err)
		}
		var figures struct{ Total struct{ Deliveries int } }
		err = json.NewDecoder(resp.Body).Decode(&figures)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		total = figures.Total.Deliveries
	}
}

// TestTerminalPage runs every command of docs/terminal.md, and those of docs/evidence.md that
// need a service, against a seeded one, in their order, and counts what a stranger's tasks take. What is shown below a command is what it
// prints, where "..." stands for any text.
func TestTerminalPage(t *testing.T) {
	exe := program(t)
	var page []byte
	for _, name := range []string{"terminal.md", "evidence.md"} {
		text, err := os.ReadFile("../../../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		page = append(page, text...)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			t.Fatal("the page needs curl")
		}
		t.Skip("the page needs curl: install the package curl")
	}
	bin := t.TempDir()
	if err := os.Symlink(exe, filepath.Join(bin, "semel")); err != nil {
		t.Skip(err)
	}
	dir, admin := seeded(t)
	environment := append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "XDG_CONFIG_HOME="+t.TempDir(), "SEMEL_URL=", "SEMEL_TOKEN=")
	counts := map[string]int{}
	section := ""
	heading := regexp.MustCompile("(?m)^##+ (.*)$|(?s)<!-- walk -->\n```sh\n(.*?)```")
	for _, part := range heading.FindAllStringSubmatch(string(page), -1) {
		if part[1] != "" {
			section = part[1]
			continue
		}
		for _, step := range strings.Split("\n"+part[2], "\n$ ")[1:] {
			command, want, _ := strings.Cut(step, "\n")
			for strings.HasSuffix(command, "\\") { // it goes on in the next line
				var more string
				more, want, _ = strings.Cut(want, "\n")
				command += "\n" + more
			}
			counts[section]++
			cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(command, "https://semel.example:8481", admin))
			cmd.Dir, cmd.Env = dir, environment
			var errs strings.Builder
			cmd.Stderr = &errs
			got, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: $ %s\n%s%s%v", section, command, got, &errs, err)
			}
			var lines []string
			for line := range strings.Lines(string(got)) {
				if strings.HasPrefix(line, "! disk: filling up") { // that of the machine which runs the tests
					continue
				}
				lines = append(lines, strings.TrimRight(line, " \n"))
			}
			pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), `\.\.\.`, "(?s:.*)")
			if !regexp.MustCompile("^" + pattern + "$").MatchString(strings.TrimSpace(strings.Join(lines, "\n"))) {
				t.Fatalf("%s: $ %s\nprinted\n%s\nnot\n%s", section, command, strings.Join(lines, "\n"), want)
			}
		}
	}
	for _, task := range tasks {
		if n := counts[task]; n == 0 || n > mostCommands {
			t.Errorf("%q takes %d commands", task, n)
		} else {
			t.Logf("%-30s %d", task, n)
		}
	}
}
