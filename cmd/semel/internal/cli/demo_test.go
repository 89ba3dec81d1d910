package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/cmd/semel/internal/demo"
)

// runDemoProgram returns what one run of the demo prints, and checks that it leaves no file
// behind.
func runDemoProgram(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	temp, foreign := t.TempDir(), filepath.Join(t.TempDir(), "store")
	cmd := exec.CommandContext(t.Context(), program(t), append([]string{"demo"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "SEMEL_STORE_URL=pebble:"+foreign)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	wantEmpty(t, temp)
	if _, err := os.Stat(foreign); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the store of another service was touched: %v", err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestDemo(t *testing.T) {
	t.Parallel()
	t.Run("every count is right and in the JSON", func(t *testing.T) {
		t.Parallel()
		page := filepath.Join(t.TempDir(), "demo.html")
		code, out, errs := runDemoProgram(t, "--exit", "--json", "--seed", "7", "--report", page)
		if code != ExitOK {
			t.Fatalf("exit %d\n%s%s", code, out, errs)
		}
		wantFields(t, out, "ok", "seed", "seconds", "control", "protected", "conflict", "lost_response", "crash", "faults")
		var r demo.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		if !r.OK || r.Seed != 7 || r.Seconds <= 0 || len(r.Faults) != 0 {
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
		if r.Crash.Effects != 1 || !r.Crash.Replayed || r.Crash.KilledPID == 0 || r.Crash.Attempts != 1 {
			t.Errorf("crash = %+v", r.Crash)
		}
		// How long each step takes depends on the machine; the order does not.
		for i, seen := range r.Crash.Seen {
			switch last := i == len(r.Crash.Seen)-1; {
			case last && seen.Status == http.StatusCreated && seen.Replayed:
			case !last && i == 0 && seen.Code == "in_flight":
			case !last && seen.Code == "held":
			default:
				t.Errorf("retry %d after the crash got %s, of %+v", i, seen, r.Crash.Seen)
			}
		}
		if !strings.Contains(errs, "kill -9") || strings.Contains(errs, "\x1b") {
			t.Errorf("the story on standard error is %q", errs)
		}
		wantDemoPage(t, page, &r)
	})
	t.Run("without its guard the demo finds the charges, fails, and does not stay", func(t *testing.T) {
		t.Parallel()
		page := filepath.Join(t.TempDir(), "demo.html")
		code, out, errs := runDemoProgram(t, "--unguarded", "--report", page)
		if code != ExitCheck {
			t.Errorf("exit %d, %s", code, errs)
		}
		for _, fault := range []string{
			"charges behind the guard: 500 instead of 20", "charges after the changed amount: 2 instead of 1",
			"charges after the lost response: 2 instead of 1", "charges after the crash: 2 instead of 1",
		} {
			if !strings.Contains(out, fault) {
				t.Errorf("%q is not in:\n%s", fault, out)
			}
			if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), fault) {
				t.Errorf("%q is not on the page, %v", fault, err)
			}
		}
	})
}

// TestDemoOfAgents runs the story of agents, and tells it without its gateway to see that it would
// notice.
func TestDemoOfAgents(t *testing.T) {
	t.Parallel()
	code, out, errs := runDemoProgram(t, "--agents", "--json")
	if code != ExitOK {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	wantFields(t, out, "ok", "seconds", "straight", "fields", "echo", "equal", "joined", "unknown", "faults")
	var r demo.AgentsReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	behind := demo.Lost{Orders: 20, Sent: 40, Payments: 20, Replayed: 20}
	if !r.OK || len(r.Faults) != 0 || r.Straight != (demo.Lost{Orders: 20, Sent: 40, Payments: 40}) || r.Fields != behind || r.Echo != behind || r.Equal != 2 || r.Joined != 1 {
		t.Errorf("%+v", r)
	}
	if u := r.Unknown; u.Outcome != "unknown" || u.Action != "verify" || u.Payments != 1 || u.Verified != "order slow-1: 1 refund" || u.KilledPID == 0 || !strings.Contains(u.Words, "which only read: refunds.") {
		t.Errorf("%+v", u)
	}
	if !strings.Contains(errs, "40 payments without a gateway, 20 behind Semel") || strings.Contains(errs, "\x1b") {
		t.Errorf("the story on standard error is %q", errs)
	}
	code, out, errs = runDemoProgram(t, "--agents", "--unguarded")
	if code != ExitCheck {
		t.Errorf("without its gateway: exit %d, %s", code, errs)
	}
	for _, fault := range []string{
		"payments through the gateway, by declared fields: 40 instead of 20", "payments through the gateway, without a key: 40 instead of 20",
		"refunds for a call that came twice at once: 2 instead of 1", "refunds after the gateway was killed: 2 instead of 1",
	} {
		if !strings.Contains(out, fault) {
			t.Errorf("%q is not in:\n%s", fault, out)
		}
	}
}

var childURL = regexp.MustCompile(`^ +(?:payments|guarded|admin) +http://(127\.0\.0\.1:\d+)`)

// startedDemo is a demo whose children are running.
type startedDemo struct {
	cmd      *exec.Cmd
	lines    *bufio.Scanner // what it says after its opening
	temp     string
	children []string // the addresses of the payment service, the guard, and the guard's operators
}

func startDemo(t *testing.T, exe string) *startedDemo {
	t.Helper()
	d := &startedDemo{cmd: exec.Command(exe, "demo"), temp: t.TempDir()}
	d.cmd.Env = append(os.Environ(), "TMPDIR="+d.temp)
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.cmd.Process.Kill() })
	d.lines = bufio.NewScanner(out)
	for len(d.children) < 3 && d.lines.Scan() {
		if m := childURL.FindStringSubmatch(d.lines.Text()); m != nil {
			d.children = append(d.children, m[1])
		}
	}
	if len(d.children) != 3 {
		t.Fatalf("children = %q, %v", d.children, d.lines.Err())
	}
	return d
}

// interrupt ends it as control-C does and checks that nothing is left.
func (d *startedDemo) interrupt(t *testing.T, wantCode int) {
	t.Helper()
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = d.cmd.Wait()
	if code := d.cmd.ProcessState.ExitCode(); code != wantCode {
		t.Errorf("exit %d, want %d", code, wantCode)
	}
	wantEmpty(t, d.temp)
	wantGone(t, d.children)
}

var quoted = regexp.MustCompile(`'([^']*)'`)

// TestDemoStays tries what the demo invites to when its story is told.
func TestDemoStays(t *testing.T) {
	t.Parallel()
	d := startDemo(t, program(t))
	named := map[string]string{} // the first word of a line, and the URL or path in it
	var headers []string
	body, story := "", ""
	for d.lines.Scan() {
		story += d.lines.Text() + "\n"
		fields := strings.Fields(d.lines.Text())
		for _, f := range fields[min(1, len(fields)):] {
			if strings.HasPrefix(f, "http://") || filepath.IsAbs(f) {
				named[fields[0]] = f
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(d.lines.Text(), -1) {
			if strings.HasPrefix(m[1], "{") {
				body = m[1]
			} else if strings.Contains(m[1], ": ") {
				headers = append(headers, m[1])
			}
		}
		if named["config"] != "" {
			break
		}
	}
	if named["config"] == "" {
		t.Fatalf("it does not stay:\n%s", story)
	}
	get := func(t *testing.T, address string) string {
		t.Helper()
		resp, err := http.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", address, resp.Status, err)
		}
		return string(text)
	}
	t.Run("the charge it invites to is made once, and replayed", func(t *testing.T) {
		for _, replayed := range []string{"", "true", "true"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, named["charge"], strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range headers {
				name, value, _ := strings.Cut(h, ": ")
				r.Header.Set(name, value)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusCreated || resp.Header.Get("Idempotency-Replayed") != replayed {
				t.Errorf("%s, replayed %q instead of %q", resp.Status, resp.Header.Get("Idempotency-Replayed"), replayed)
			}
		}
	})
	t.Run("the ledger it names has that charge once", func(t *testing.T) {
		var charges []demo.Charge
		if err := json.Unmarshal([]byte(get(t, named["ledger"])), &charges); err != nil || len(charges) != 1 || charges[0].Amount != 1200 {
			t.Errorf("ledger = %v, %v", charges, err)
		}
	})
	t.Run("the other addresses answer, and the file is there", func(t *testing.T) {
		if text := get(t, named["records"]); !strings.Contains(text, `"try-1"`) || !strings.Contains(text, `"order:crash-1"`) {
			t.Errorf("records = %s", text)
		}
		get(t, named["API"])
		if code, _, errs := semelWith(t, "", "config", "validate", named["config"]); code != ExitOK {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
	for i, name := range []string{"ledger", "charge", "records"} {
		u, err := url.Parse(named[name])
		if err != nil || u.Host != d.children[i] {
			t.Errorf("the address of the %s was %s in the beginning, and is %v, %v", name, d.children[i], u, err)
		}
	}
	t.Run("an interrupt ends it in peace", func(t *testing.T) { d.interrupt(t, ExitOK) })
}

// TestDemoEnds interrupts and kills the demo while its children are running.
func TestDemoEnds(t *testing.T) {
	t.Parallel()
	exe := program(t)
	t.Run("an interrupt ends it, its children and its files", func(t *testing.T) {
		startDemo(t, exe).interrupt(t, ExitCheck)
	})
	t.Run("its children do not outlive it when it is killed", func(t *testing.T) {
		d := startDemo(t, exe)
		if err := d.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = d.cmd.Wait()
		wantGone(t, d.children)
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
	deadline := time.After(busyPatience)
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
