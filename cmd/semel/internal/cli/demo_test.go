package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/cmd/semel/internal/demo"
)

// program builds the program once for the tests that run it as users do.
func program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("the program is not built and run with -short")
	}
	exe := filepath.Join(t.TempDir(), "semel.exe")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", exe, "github.com/semelhq/semel/cmd/semel").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exe
}

func TestDemo(t *testing.T) {
	exe := program(t)
	// run returns what one run of the demo prints, and checks that it leaves no
	// file behind.
	run := func(t *testing.T, args ...string) (code int, stdout, stderr string) {
		t.Helper()
		temp := t.TempDir()
		cmd := exec.CommandContext(t.Context(), exe, append([]string{"demo"}, args...)...)
		cmd.Env = append(os.Environ(), "TMPDIR="+temp)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
			t.Fatal(err)
		}
		wantEmpty(t, temp)
		return cmd.ProcessState.ExitCode(), out.String(), errs.String()
	}
	t.Run("every count is right and in the JSON", func(t *testing.T) {
		code, out, errs := run(t, "--exit", "--json", "--seed", "7")
		if code != ExitOK {
			t.Fatalf("exit %d\n%s%s", code, out, errs)
		}
		wantFields(t, out, "ok", "seed", "seconds", "control", "protected", "conflict", "lost_response", "crash", "faults")
		var r demo.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		if !r.OK || r.Seed != 7 || r.Seconds <= 0 || r.Seconds >= 30 || len(r.Faults) != 0 {
			t.Errorf("ok %v, seed %d, %.1f s, faults %q", r.OK, r.Seed, r.Seconds, r.Faults)
		}
		if r.Control.Sent != 500 || r.Control.Effects != 500 {
			t.Errorf("control = %+v", r.Control)
		}
		if p := r.Protected; p.Sent != 500 || p.Effects != 20 || p.Replayed != 480 || p.Requests != p.Sent+p.InFlight {
			t.Errorf("protected = %+v", p)
		}
		if r.Conflict.Status != 422 || r.Conflict.Code != "conflict" || r.Conflict.Effects != 1 {
			t.Errorf("conflict = %+v", r.Conflict)
		}
		if r.LostResponse.Effects != 1 || !r.LostResponse.Replayed {
			t.Errorf("lost response = %+v", r.LostResponse)
		}
		if r.Crash.Effects != 1 || !r.Crash.Replayed || r.Crash.KilledPID == 0 || r.Crash.Seen[0].Code != "in_flight" {
			t.Errorf("crash = %+v", r.Crash)
		}
		if !strings.Contains(errs, "kill -9") || strings.Contains(errs, "\x1b") {
			t.Errorf("the story on standard error is %q", errs)
		}
	})
	t.Run("without its guard the demo finds the charges and fails", func(t *testing.T) {
		code, out, errs := run(t, "--json", "--unguarded")
		var r demo.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%v\n%s%s", err, out, errs)
		}
		if code != ExitCheck || r.OK || r.Protected.Effects != 500 || r.Conflict.Effects != 2 || r.LostResponse.Effects != 2 || r.Crash.Effects != 2 {
			t.Errorf("exit %d, %s", code, out)
		}
	})
}

var childURL = regexp.MustCompile(`http://(127\.0\.0\.1:\d+)`)

// TestDemoEnds interrupts and kills the demo while its children are running.
func TestDemoEnds(t *testing.T) {
	exe := program(t)
	start := func(t *testing.T) (cmd *exec.Cmd, temp string, children []string) {
		t.Helper()
		temp = t.TempDir()
		cmd = exec.Command(exe, "demo")
		cmd.Env = append(os.Environ(), "TMPDIR="+temp)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		lines := bufio.NewScanner(out)
		for len(children) < 2 && lines.Scan() {
			if m := childURL.FindStringSubmatch(lines.Text()); m != nil {
				children = append(children, m[1])
			}
		}
		if len(children) != 2 {
			t.Fatalf("children = %q, %v", children, lines.Err())
		}
		return cmd, temp, children
	}
	t.Run("an interrupt ends it, its children and its files", func(t *testing.T) {
		cmd, temp, children := start(t)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != ExitCheck {
			t.Errorf("exit %d", code)
		}
		wantEmpty(t, temp)
		wantGone(t, children)
	})
	t.Run("its children do not outlive it when it is killed", func(t *testing.T) {
		cmd, _, children := start(t)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		wantGone(t, children)
	})
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

// wantGone waits until nobody listens at the addresses.
func wantGone(t *testing.T, addresses []string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for _, address := range addresses {
		for {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				break
			}
			conn.Close()
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%s still accepts connections", address)
			}
		}
	}
}
