package dashboard_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// patience is how long something may take that takes a second on a machine with nothing else
// to do: a test is not to fail because others run beside it.
const patience = 2 * time.Minute

// browser is the one Chromium of all tests; each has a tab of its own.
var browser struct {
	once sync.Once
	ctx  context.Context
	stop context.CancelFunc
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if browser.stop != nil {
		browser.stop()
	}
	os.Exit(code)
}

// tab is a page of the dashboard in a real browser.
type tab struct {
	t     *testing.T
	ctx   context.Context
	base  string
	close func() // it's closed with its test at the latest
}

// open starts a tab of the size of a laptop's window, at the page's first screen. The test is
// skipped where there is no Chromium, and with -short.
func open(t *testing.T, base string) *tab {
	t.Helper()
	return openAt(t, base, "/")
}

// openAt is open, at a path or a screen.
func openAt(t *testing.T, base, at string) *tab {
	t.Helper()
	if testing.Short() { // as under the race detector, which sees nothing of what a browser does
		t.Skip("with -short no browser is started")
	}
	browser.once.Do(func() {
		for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
			if _, err := exec.LookPath(name); err == nil {
				opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.WSURLReadTimeout(patience), chromedp.NoSandbox, chromedp.Flag("hide-scrollbars", true))
				allocator, stop := chromedp.NewExecAllocator(context.Background(), opts...)
				browser.ctx, browser.stop = allocator, stop
				first, _ := chromedp.NewContext(allocator) // ends with the allocator
				browser.ctx, browser.err = first, chromedp.Do(first, chromedp.Navigate("about:blank"))
				return
			}
		}
		browser.err = exec.ErrNotFound
	})
	if browser.err != nil {
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "" {
			t.Skip("no Chromium: ", browser.err)
		}
		t.Fatal("no Chromium: ", browser.err)
	}
	ctx, cancel := chromedp.NewContext(browser.ctx)
	t.Cleanup(cancel)
	tb := &tab{t: t, ctx: ctx, base: base, close: cancel}
	tb.do(chromedp.EmulateViewport(1280, 860), chromedp.Navigate(base+at))
	return tb
}

func (tb *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	if err := chromedp.Do(tb.ctx, actions...); err != nil {
		tb.t.Fatal(err)
	}
}

// eval runs a script in the page and returns its value.
func eval[T any](tb *tab, script string) T {
	tb.t.Helper()
	v, err := chromedp.Run(tb.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		tb.t.Fatalf("%s: %v", script, err)
	}
	return v
}

// wait waits until a condition in the page holds. If it never does, the test fails with what
// the page shows.
func (tb *tab) wait(condition string) {
	tb.t.Helper()
	ok := eval[bool](tb, fmt.Sprintf(`new Promise((done) => {
		const start = Date.now();
		const look = () => {
			let holds = false;
			try { holds = !!(%s); } catch { /* not there yet */ }
			if (holds || Date.now() - start > %d) done(holds);
			else setTimeout(look, 20);
		};
		look();
	})`, condition, patience.Milliseconds()))
	if !ok {
		tb.t.Fatalf("never: %s\nthe page shows:\n%s", condition, tb.text())
	}
}

// shows waits until the page shows a text.
func (tb *tab) shows(text string) {
	tb.t.Helper()
	tb.wait(fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

func (tb *tab) text() string { return eval[string](tb, "document.body.innerText") }

// visit goes to a screen by its address.
func (tb *tab) visit(hash string) {
	tb.t.Helper()
	eval[string](tb, fmt.Sprintf("location.hash = %q", hash))
}

// click clicks on the first element of a kind that has exactly this text.
func (tb *tab) click(selector, text string) {
	tb.t.Helper()
	find := fmt.Sprintf("[...document.querySelectorAll(%q)].find((e) => e.textContent.trim() === %q && !e.disabled)", selector, text)
	tb.wait(find)
	eval[bool](tb, "("+find+".click(), true)")
}

// fill types into a field, as a person's keyboard would.
func (tb *tab) fill(selector, text string) {
	tb.t.Helper()
	tb.wait(fmt.Sprintf("document.querySelector(%q).getClientRects().length > 0", selector))
	tb.do(chromedp.Focus(chromedp.CSS(selector)))
	eval[bool](tb, fmt.Sprintf("(document.querySelector(%q).select(), true)", selector))
	tb.do(chromedp.KeyEvent(text))
}

// press presses keys that the page takes for commands. Those of one string are pressed at
// once: the page waits for the second of two for a moment only.
func (tb *tab) press(keys ...string) {
	tb.t.Helper()
	for _, together := range keys {
		eval[bool](tb, fmt.Sprintf("%q.split(' ').map((key) => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}))).length > 0", together))
	}
}

func (tb *tab) theme(name string) {
	tb.t.Helper()
	eval[bool](tb, fmt.Sprintf("(localStorage.setItem('semel.theme', %q), true)", name))
	tb.do(chromedp.Reload())
}

// screenshots is where pictures are kept: SEMEL_SCREENSHOTS. Without it none are taken.
func screenshots(t *testing.T) string {
	dir := os.Getenv("SEMEL_SCREENSHOTS")
	if dir == "" {
		return ""
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// picture takes one, if anybody wants to look at it.
func (tb *tab) picture(dir, name string) {
	tb.t.Helper()
	if dir == "" {
		return
	}
	png, err := chromedp.Run(tb.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		tb.t.Fatal(err)
	}
	keep(tb.t, dir, name+".png", png)
}

// keep writes a file that somebody may want to look at.
func keep(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// violation is what axe-core finds.
type violation struct {
	ID, Impact, Help string
	Nodes            []string
}

// accessible fails for what axe-core calls serious or critical.
func (tb *tab) accessible(axe, name string) {
	tb.t.Helper()
	if axe == "" {
		return
	}
	eval[bool](tb, axe+"; true")
	found := eval[[]violation](tb, `axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations
		.filter((v) => v.impact === 'serious' || v.impact === 'critical')
		.map((v) => ({ID: v.id, Impact: v.impact, Help: v.help, Nodes: v.nodes.slice(0, 4).map((n) => n.html.slice(0, 160) + ' ' + n.failureSummary)})))`)
	for _, v := range found {
		tb.t.Errorf("%s: axe finds %s (%s): %s\n  %s", name, v.ID, v.Impact, v.Help, strings.Join(v.Nodes, "\n  "))
	}
}

// axe is the text of axe-core, empty where scripts/install-sdks has not installed it.
func axe(t *testing.T) string {
	text, err := os.ReadFile(filepath.Join("testdata", "npm", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		if os.Getenv("SEMEL_REQUIRE_SERVICES") != "" {
			t.Fatal("run scripts/install-sdks: ", err)
		}
		t.Log("without axe-core: run scripts/install-sdks")
	}
	return string(text)
}
