package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/pgtest"
	"github.com/semelhq/semel/internal/redistest"
	"github.com/semelhq/semel/internal/stage"
	"github.com/semelhq/semel/internal/thorough"
)

// beforeEnv names the commit that TestTheVersionBefore takes for the version before. Without
// it, it is the newest tag, or a commit some way back if there is none.
const beforeEnv = "SEMEL_BEFORE"

// versionBefore builds the program of the version before.
func versionBefore(t *testing.T) (exe, commit string) {
	t.Helper()
	git := func(args ...string) (string, error) {
		cmd := exec.Command("git", args...)
		cmd.Dir = "../../../.."
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	tag, _ := git("describe", "--tags", "--abbrev=0", "HEAD^") // none is no mistake
	commit, err := git("rev-parse", "--verify", cmp.Or(os.Getenv(beforeEnv), tag, "HEAD~40")+"^{commit}")
	if err != nil {
		t.Skipf("there is no version before: this isn't a checkout with its history (%v)", err)
	}
	tree := filepath.Join(t.TempDir(), "tree")
	if out, err := git("worktree", "add", "--detach", tree, commit); err != nil {
		t.Fatal(out, err)
	}
	t.Cleanup(func() {
		if out, err := git("worktree", "remove", "--force", tree); err != nil {
			t.Error(out, err)
		}
	})
	exe = filepath.Join(t.TempDir(), "semel")
	cmd := exec.Command("go", "build", "-o", exe, "./cmd/semel")
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exe, commit
}

// versions are programs that serve one store, in turns or at the same time.
type versions struct {
	t       *testing.T
	store   string
	alone   bool // a store that one process uses at a time
	running map[string]*stage.Process
}

// on returns where a program serves, and starts it if need be.
func (v *versions) on(exe string) string {
	v.t.Helper()
	for other, p := range v.running {
		if v.alone && other != exe {
			if err := p.Terminate(); err != nil {
				v.t.Fatal(err)
			}
			delete(v.running, other)
		}
	}
	if v.running[exe] == nil {
		cmd := exec.Command(exe, "serve", "--json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", v.store)
		cmd.Dir = v.t.TempDir()
		cmd.Env = append(os.Environ(), "SEMEL_STORE_MIGRATE=true")
		p, err := stage.Start(v.t.Context(), cmd)
		if err != nil {
			v.t.Fatal(err)
		}
		v.t.Cleanup(p.Kill)
		v.running[exe] = p
	}
	return v.running[exe].URL
}

func (v *versions) post(url, key, body string, want int) (execution string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer res.Body.Close()
	var text bytes.Buffer
	_, _ = text.ReadFrom(res.Body) // a part of it fails below
	if res.StatusCode != want || want == http.StatusOK && key != "" && !strings.Contains(text.String(), `"result":{"n":1}`) {
		v.t.Fatalf("%s %s: %d, want %d\n%s", url, key, res.StatusCode, want, &text)
	}
	var begun struct{ Execution string }
	_ = json.Unmarshal(text.Bytes(), &begun) // some answers have none
	return begun.Execution
}

func (v *versions) begin(exe, key string, want int) (execution string) {
	v.t.Helper()
	return v.post(v.on(exe)+"/v1/operations/default/executions", key, `{"payload":{"amount":12}}`, want)
}

func (v *versions) complete(exe, execution string) {
	v.t.Helper()
	v.post(v.on(exe)+"/v1/executions/"+execution+"/complete", "", `{"result":{"n":1}}`, http.StatusOK)
}

// TestTheVersionBefore upgrades from the version before and goes back, and lets both serve one
// store at the same time where that can be: each replays what the other has recorded, and ends
// what the other began.
func TestTheVersionBefore(t *testing.T) {
	thorough.Only(t, "the program of the version before, which is built")
	before, commit := versionBefore(t)
	now := program(t)
	stores := map[string]func(t *testing.T) versions{
		"embedded": func(t *testing.T) versions { return versions{store: "pebble:" + t.TempDir(), alone: true} },
		"redis":    func(t *testing.T) versions { return versions{store: redistest.Start(t, "always").URL()} },
		"postgres": func(t *testing.T) versions {
			diff := exec.Command("git", "diff", "--quiet", commit, "--", ".")
			diff.Dir = "../../../../store/pgstore/migrations"
			if diff.Run() != nil {
				t.Skip("there was a migration in between: TestUpgradeOfASchema has what is promised then")
			}
			server := pgtest.Start(t, nil)
			return versions{store: server.URL(server.Database(t))}
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			v := open(t)
			v.t, v.running = t, map[string]*stage.Process{}
			v.complete(before, v.begin(before, "order-a", http.StatusCreated))
			b := v.begin(before, "order-b", http.StatusCreated)
			v.begin(now, "order-a", http.StatusOK)
			v.begin(now, "order-b", http.StatusConflict) // it is in flight
			v.complete(now, b)
			v.complete(now, v.begin(now, "order-c", http.StatusCreated))
			d := v.begin(now, "order-d", http.StatusCreated)
			for _, key := range []string{"order-a", "order-b", "order-c"} { // and back
				v.begin(before, key, http.StatusOK)
			}
			v.complete(before, d)
			v.begin(now, "order-d", http.StatusOK)
		})
	}
}
