package others

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/stage"
)

var (
	update = flag.Bool("update", false, "write docs/others.md, and the transcripts of what has become red")
	rounds = flag.Int("rounds", 3, "how often to repeat the whole check: what is red in one round is red")
	only   = flag.String("only", "", "judge the one of this name, and write nothing")
)

// TestMain is also the servers in Go, each in a process of its own.
func TestMain(m *testing.M) {
	if name := os.Getenv("SERVE"); name != "" {
		go func() { // ends with the process that has started it
			_, _ = os.Stdin.Read(make([]byte, 1))
			os.Exit(0)
		}()
		for _, o := range all {
			if o.name == name {
				o.serve()
			}
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// judged is what the rounds found of one: the worst verdict on each requirement.
type judged struct {
	other
	version  string
	worst    map[string]check.Verdict
	verdicts []string // the ids, in the order of the groups
}

// TestOthers judges all, and compares with docs/others.md.
func TestOthers(t *testing.T) {
	results := make([]*judged, len(all))
	t.Run("all", func(t *testing.T) {
		for i, o := range all {
			if *only == "" || o.name == *only {
				t.Run(o.name, func(t *testing.T) {
					t.Parallel()
					results[i] = judge(t, o)
				})
			}
		}
	})
	if t.Failed() || *only != "" {
		return
	}
	page := filepath.Join("..", "..", "docs", "others.md")
	want := document(results)
	if *update {
		for _, r := range results {
			r.keepTranscript(t)
		}
		if err := os.WriteFile(page, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("docs/others.md isn't what was found now (%v): run make prove-others UPDATE=1, and see what has changed", err)
	}
}

// judge checks one as often as the rounds say, each time from nothing.
func judge(t *testing.T, o other) *judged {
	r := &judged{other: o, worst: map[string]check.Verdict{}}
	if o.pkg != "" {
		r.version = pinned(t, o.pkg)
	}
	for seed := range *rounds {
		report := o.round(t, uint64(seed+1))
		r.verdicts = nil
		for _, v := range report.Verdicts {
			r.verdicts = append(r.verdicts, v.ID)
			if old, ok := r.worst[v.ID]; !ok || severity[v.Outcome] > severity[old.Outcome] {
				r.worst[v.ID] = v
			}
		}
		if testing.Verbose() {
			var b strings.Builder
			_ = report.Print(&b)
			t.Log(b.String())
		}
	}
	for _, group := range r.groups() {
		ids, _ := r.broken(group)
		for _, id := range ids {
			_, declined := r.declined.of(id)
			if _, promised := r.promised.of(id); declined == promised {
				t.Errorf("%s is broken, and nothing says whether that is promised: %s", id, r.worst[id].Saw)
			}
		}
	}
	return r
}

var severity = map[check.Outcome]int{check.Unseen: 0, check.Kept: 1, check.Advised: 2, check.Broken: 3}

// round starts one, with an empty store and a bank of its own, and checks it.
func (o other) round(t *testing.T, seed uint64) *check.Report {
	money := bank(t)
	env := append(os.Environ(), "BANK="+money, "STORE="+t.TempDir(), "SERVE="+o.name, o.env)
	if o.redis {
		env = append(env, "REDIS="+redistest.Start(t, "always").URL())
	}
	var p *stage.Process
	start := func(ctx context.Context, port string) (err error) {
		cmd, err := stage.Self()
		if o.node != "" {
			cmd, err = exec.Command("node", o.node), nil
			cmd.Dir = "npm"
		}
		if err == nil {
			cmd.Env = append(env, "PORT="+port)
			p, err = stage.Start(ctx, cmd)
		}
		return err
	}
	if err := start(t.Context(), "0"); err != nil {
		t.Fatal(err)
	}
	defer func() { p.Kill() }()
	asked := requests
	if o.paths != nil {
		asked = o.paths.Replace(requests)
	}
	report, err := check.Run(t.Context(), check.Options{
		URL: p.URL, Count: money, Requests: asked, Seed: seed, Patience: cmp.Or(o.patience, 2*time.Second),
		Restart: func(ctx context.Context) error {
			at, err := url.Parse(p.URL)
			if err != nil {
				return err
			}
			p.Kill()
			return start(ctx, at.Port())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// pinned is the version of a package in go.mod, or in npm/package.json.
func pinned(t *testing.T, pkg string) string {
	for _, file := range []string{"go.mod", filepath.Join("npm", "package.json")} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if m := regexp.MustCompile(`(?m)^\s*"?` + regexp.QuoteMeta(pkg) + `"?:? "?v?([0-9][^",\s]*)`).FindSubmatch(text); m != nil {
			return string(m[1])
		}
	}
	t.Fatal(fmt.Errorf("no version of %s is pinned", pkg))
	return ""
}
