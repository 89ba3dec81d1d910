package dashboard_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestScreens shows every screen on the same story, in both themes, and looks for what a
// person with a screen reader or a keyboard would stumble over.
func TestScreens(t *testing.T) {
	w := newWorld(t, false)
	w.seed()
	w.storm("slow-order-2000", 9)
	w.stick("stuck-31")
	tb := open(t, w.page())
	dir := screenshots(t)
	axe := axe(t)
	tb.shows("Overview")
	for _, theme := range []string{"light", "dark"} {
		tb.theme(theme)
		for _, screen := range []struct{ name, hash, shows string }{
			{"overview", "#/overview", "Duplicates stopped"},
			{"records", "#/records", "lost-4712"},
			{"record", "#/find/slow-order-2000", "Executed once"},
			{"record-attempts", "#/find/flaky-77", "Executed by attempt 3"},
			{"record-held", "#/find/lost-4711", "nobody knows whether its work was done"},
			{"record-effects", "#/find/invoice-9", "charge card"},
			{"record-conflict", "#/find/order-1003", "conflict"},
			{"held", "#/held", "lost-4712"},
			{"conflicts", "#/conflicts", "order-1003"},
			{"tail", "#/tail", "executed"},
			{"dispatch", "#/dispatch", "parked"},
			{"operations", "#/operations", "payments.charge"},
			{"operation", "#/operations/payments.charge", "financial"},
			{"evidence", "#/evidence", "proved"},
			{"health", "#/health", "This node is ready"},
			{"nodes", "#/nodes", "this page"},
			{"reference", "#/reference", "Search records"},
			{"docs", "#/docs", "Codes"},
			{"settings", "#/settings", "This browser"},
		} {
			tb.visit(screen.hash)
			tb.shows(screen.shows)
			tb.wait("!document.querySelector('.loading')")
			if text := tb.text(); strings.Contains(text, "undefined") || strings.Contains(text, "NaN") || strings.Contains(text, "[object") {
				t.Errorf("%s shows a value that isn't there:\n%s", screen.name, text)
			}
			tb.picture(dir, screen.name+"-"+theme)
			tb.accessible(axe, screen.name+" "+theme)
		}
		for _, deep := range []struct {
			name string
			show func()
		}{{"conflicts-compared", tb.compares}, {"operations-explained", tb.explains}} {
			deep.show()
			tb.picture(dir, deep.name+"-"+theme)
			tb.accessible(axe, deep.name+" "+theme)
		}
	}
}

// TestNarrow shows every screen on a phone, and at 200 %: nothing but tables may scroll
// sideways.
func TestNarrow(t *testing.T) {
	w := newWorld(t, false)
	w.seed()
	tb := open(t, w.page())
	dir := screenshots(t)
	for _, size := range []struct {
		name          string
		width, height int64
	}{{"360", 360, 740}, {"zoom", 640, 430}} {
		tb.do(chromedp.EmulateViewport(size.width, size.height))
		for _, hash := range []string{"overview", "records", "find/flaky-77", "held", "conflicts", "tail", "dispatch", "operations", "operations/payments.charge", "evidence", "health", "nodes", "reference", "docs", "settings"} {
			tb.visit("#/" + hash)
			tb.wait("document.querySelector('main h1') && !document.querySelector('.loading')")
			if over := eval[int](tb, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
				t.Errorf("%s at %s is %d pixels too wide", hash, size.name, over)
			}
			tb.picture(dir, strings.ReplaceAll(hash, "/", "-")+"-"+size.name)
		}
		for name, show := range map[string]func(){"conflicts-compared": tb.compares, "operations-explained": tb.explains} {
			show()
			if over := eval[int](tb, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
				t.Errorf("%s at %s is %d pixels too wide", name, size.name, over)
			}
			tb.picture(dir, name+"-"+size.name)
		}
	}
}
