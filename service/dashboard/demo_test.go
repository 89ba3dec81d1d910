package dashboard_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var demoURL = regexp.MustCompile(`^ +dashboard +(http://127\.0\.0\.1:\d+)/`)

// runDemo runs the program's demo, and returns the address of the dashboard that it leaves.
// The demo ends with the test, and leaves no file behind.
func runDemo(t *testing.T) string {
	t.Helper()
	exe, temp := filepath.Join(t.TempDir(), "semel.exe"), t.TempDir()
	if out, err := exec.Command("go", "build", "-o", exe, "github.com/semelhq/semel/cmd/semel").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	demo := exec.Command(exe, "demo", "--seed", "7")
	demo.Env = append(os.Environ(), "TMPDIR="+temp)
	out, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = demo.Process.Signal(os.Interrupt)
		if err := demo.Wait(); err != nil {
			t.Errorf("the demo ended with %v", err)
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("the demo left %v, %v", left, err)
		}
	})
	var story strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if m := demoURL.FindStringSubmatch(lines.Text()); m != nil {
			go func() {
				for lines.Scan() { // it isn't to wait for us
				}
			}()
			return m[1]
		}
		story.WriteString(lines.Text() + "\n")
	}
	t.Fatalf("the demo leaves no dashboard:\n%s", story.String())
	return ""
}

// TestDemo opens the address that a real demo prints: each screen shows its story.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("with -short the program isn't built")
	}
	tb := open(t, runDemo(t))
	dir := screenshots(t)
	for _, screen := range []struct {
		name, hash string
		shows      []string
	}{
		{"overview", "#/overview", []string{"Duplicates stopped", "payments.charge", "carts.create", "order:protected-"}},
		{"records", "#/records", []string{"refund:1", "order:crash-1", "delivery:1", "cart:1", "asked the bank by telephone"}},
		{"record-rush", "#/find/order:rush-1", []string{"Executed once", "12 more deliveries", "conflict", "proved"}},
		{"record-burst", "#/find/order:protected-01", []string{"Executed once", "more deliveries", "× again", "24 times", "proved"}},
		{"record-crash", "#/find/order:crash-1", []string{"Settled as completed by the reconciler", "as the reconciler said", "was refused: the call is held", "proved"}},
		{"record-conflict", "#/find/order:conflict-1", []string{"conflict", "proved"}},
		{"record-held", "#/find/refund:1", []string{"nobody knows whether its work was done", "Settle"}},
		{"record-settled", "#/find/refund:2", []string{"Settled as aborted by local", "as the operator local said", "asked the bank by telephone"}},
		{"record-attempts", "#/find/cart:1", []string{"Executed by attempt 3", "Attempt 3"}},
		{"record-effects", "#/find/delivery:1", []string{"print label", "parcel.ready", "delivered", "parked"}},
		{"record-twice", "#/find/order:twice-1", []string{"The same payload came under another key", "order:twice-1-again"}},
		{"held", "#/held", []string{"refund:1", "delivery:2", "reconciler"}},
		{"conflicts", "#/conflicts", []string{"payments.charge", "order:rush-1", "Compare"}},
		{"tail", "#/tail", []string{"executed", "order:rush-1", "replayed"}},
		{"dispatch", "#/dispatch", []string{"parcel.pick", "warehouse", "parked"}},
		{"operations", "#/operations", []string{"payments.charge", "shop.deliver", "financial"}},
		{"operation", "#/operations/payments.charge", []string{"financial"}},
		{"evidence", "#/evidence", []string{"semel.demo", "proved"}},
		{"health", "#/health", []string{"This node is ready", "evidence"}},
		{"nodes", "#/nodes", []string{"this page", "v"}},
		{"reference", "#/reference", []string{"Search records"}},
		{"docs", "#/docs", []string{"Codes", "conflict"}},
		{"settings", "#/settings", []string{"This browser"}},
	} {
		t.Run(screen.name, func(t *testing.T) {
			tb := *tb
			tb.t = t
			tb.visit(screen.hash)
			for _, text := range screen.shows {
				tb.shows(text)
			}
			tb.wait("!document.querySelector('.loading')")
			if text := tb.text(); strings.Contains(text, "undefined") || strings.Contains(text, "NaN") || strings.Contains(text, "[object") {
				t.Errorf("it shows a value that isn't there:\n%s", text)
			}
			tb.wait("!document.querySelector('.failed, main > .empty')")
			tb.picture(dir, "demo-"+screen.name)
		})
	}
	checkPictures(t, tb)
}
