package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/semelhq/semel/internal/rig/servertest"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// TestConformance runs the official suite of two revisions against a stock server: bare, behind
// the gateway, and behind it with every request sent twice at once. Three equal tables, and the
// server gets each call once.
func TestConformance(t *testing.T) {
	thorough.Only(t, "the official conformance suite of MCP")
	t.Parallel()
	node(t)
	exe := filepath.Join(t.TempDir(), "everything-server")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", exe, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		revision  string
		stateless bool
	}{{"2026-07-28", true}, {"2025-11-25", false}} {
		t.Run(c.revision, func(t *testing.T) {
			t.Parallel()
			server := everything(t, exe, c.stateless)
			bare := conform(t, server, c.revision)
			count := newCounter(urlOf(t, server))
			front := start(t, listen(t, count)+"/mcp")
			once := conform(t, front.URL()+"/mcp", c.revision)
			sent, _ := count.take()
			bare.equal(t, once, "behind the gateway")
			shim := &twice{t: t, to: urlOf(t, front.URL())}
			again := conform(t, listen(t, shim)+"/mcp", c.revision)
			shim.pending.Lock()
			bare.equal(t, again, "with every request sent twice")
			effects, keys := count.take()
			for key, n := range keys {
				if n != 1 {
					t.Errorf("the call with the key %q reached the server %d times", key, n)
				}
			}
			if !maps.Equal(sent, effects) || len(sent) == 0 {
				t.Errorf("calls at the server:\n%v\nand when each request was sent twice:\n%v", sent, effects)
			}
			t.Logf("%s: %s; %d calls at the server, twice", c.revision, bare.sum(), len(keys))
		})
	}
}

// everything starts the server of the SDK for Go that the suite is made for.
func everything(t *testing.T, exe string, stateless bool) string {
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(servertest.FreePort(t)))
	s := &servertest.Server{TB: t, Graceful: syscall.SIGTERM}
	s.Process = servertest.Process{
		Dir: t.TempDir(),
		Command: func() (*exec.Cmd, error) {
			return exec.Command(exe, "-http", at, fmt.Sprintf("-stateless=%t", stateless)), nil
		},
		Answers: func(ctx context.Context) error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
			if err == nil {
				err = conn.Close()
			}
			return err
		},
	}
	servertest.Check(t, s.Process.Start())
	t.Cleanup(s.Stop)
	return "http://" + at + "/mcp"
}

// table has what the suite found, by scenario: each check and its status.
type table map[string][]string

// stamp ends the name of a folder of results.
var stamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT[0-9Z-]+$`)

// conform runs the scenarios that a revision requires, and those that aren't scored.
func conform(t *testing.T, url, revision string) table {
	t.Helper()
	dir := t.TempDir()
	suite := filepath.Join("node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
	// It fails if a check does, which the table says, too.
	out, err := node(t, suite, "server", "--url", url, "--requirements", revision, "-o", dir).CombinedOutput()
	results, globErr := filepath.Glob(filepath.Join(dir, "server-*", "checks.json"))
	if globErr != nil || len(results) < 30 {
		t.Fatalf("%v, %d results\n%s", err, len(results), out)
	}
	got := table{}
	for _, name := range results {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		if err := json.Unmarshal(text, &checks); err != nil {
			t.Fatal(err)
		}
		scenario := stamp.ReplaceAllString(strings.TrimPrefix(filepath.Base(filepath.Dir(name)), "server-"), "")
		got[scenario] = []string{}
		for _, c := range checks {
			line := c.ID + " " + c.Status
			if c.Status == "FAILURE" {
				line += ": " + c.ErrorMessage
			}
			got[scenario] = append(got[scenario], line)
		}
	}
	return got
}

// other are scenarios in which the gateway says more than the server does, with the reason.
var other = map[string]string{
	"server-sse-polling": "the server ends the stream of a call before its response, and gives no id after which anybody could read on: nobody knows the outcome, and the gateway says so (not scored)",
}

// equal compares a table with that of another run.
func (a table) equal(t *testing.T, b table, how string) {
	t.Helper()
	for _, scenario := range slices.Sorted(maps.Keys(a)) {
		same, why := slices.Equal(a[scenario], b[scenario]), other[scenario]
		if same && why != "" {
			t.Errorf("%s passes %s now: take it off the list", scenario, how)
		}
		if !same && why == "" {
			t.Errorf("%s %s\nbare:\n%s\nand so:\n%s", scenario, how, lines(a[scenario]), lines(b[scenario]))
		}
	}
	if len(a) != len(b) {
		t.Errorf("%d scenarios, and %d %s", len(a), len(b), how)
	}
}

// sum counts the checks by status.
func (a table) sum() string {
	counts := map[string]int{}
	for _, checks := range a {
		for _, c := range checks {
			_, status, _ := strings.Cut(c, " ")
			status, _, _ = strings.Cut(status, ":")
			counts[status]++
		}
	}
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[status], status))
	}
	return fmt.Sprintf("%d scenarios, %s", len(a), strings.Join(parts, ", "))
}
