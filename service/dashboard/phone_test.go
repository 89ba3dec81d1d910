package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/semelhq/semel"
)

// TestPhone: on a phone, what somebody is to press and to read is in sight, and large enough
// for a thumb.
func TestPhone(t *testing.T) {
	w := newWorld(t, false)
	w.seed()
	tb := open(t, w.page())
	dir := screenshots(t)
	tb.do(chromedp.EmulateViewport(360, 740))
	tb.visit("#/held")
	tb.wait("document.querySelector('td.do button')")
	for _, b := range eval[[]struct {
		Text                string
		Left, Right, Height float64
	}](tb, `[...document.querySelectorAll('td.do button')].map((e) => {
		const own = e.getBoundingClientRect(), card = e.closest('.card').getBoundingClientRect();
		return { Text: e.textContent, Left: own.left - card.left, Right: card.right - own.right, Height: own.height };
	})`) {
		if b.Left < 0 || b.Right < 0 || b.Height < 36 {
			t.Errorf("the button %s is %.0f and %.0f pixels inside of its card, and %.0f high", b.Text, b.Left, b.Right, b.Height)
		}
	}
	tb.visit("#/records")
	tb.wait("document.querySelector('.rows td.k')")
	if got := eval[float64](tb, "Math.min(...[...document.querySelectorAll('.rows td.k')].map((e) => e.clientWidth))"); got < 180 {
		t.Errorf("a key has %.0f pixels", got)
	}
	// What can be seen is drawn, however far one scrolls: the rows are as high as is reckoned with.
	if got := eval[[]float64](tb, `((box) => { box.scrollTop = box.scrollHeight; const rows = [...box.querySelectorAll('tbody tr:not(.pad)')].map((e) => e.offsetHeight); return [Math.min(...rows), Math.max(...rows)]; })(document.querySelector('.rows'))`); got[0] != 60 || got[1] != 60 {
		t.Errorf("rows are %v pixels high", got)
	}
	for _, hash := range []string{"held", "records", "dispatch", "conflicts", "find/invoice-9"} {
		tb.visit("#/" + hash)
		tb.wait("document.querySelector('main h1') && !document.querySelector('.loading')")
		tb.accessible(axe(t), hash)
		tb.picture(dir, "phone-"+strings.ReplaceAll(hash, "/", "-"))
	}
}

// scripts are names as long as they may be, in scripts that break lines in other places, or
// are written from right to left; the last one turns what follows it round.
var scripts = map[string]string{"latin": strings.Repeat("x", 240), "cjk": strings.Repeat("订单支付退款", 13), "arabic": strings.Repeat("طلب الدفع ", 12) + "\u202E9911"}

// TestLongNames: names and reasons as long as they may be stay in their cards, in three scripts,
// from half of a small window, as at 200 %, to a laptop's, and with large letters.
func TestLongNames(t *testing.T) {
	w := newWorld(t, false)
	for _, long := range scripts {
		ans, err := w.Engine().Begin(t.Context(), semel.Call{Tenant: "acme", Operation: "default", Key: long, Principal: long, Attributes: map[string]string{"order": long, "amount": "4200"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := ans.Attempt.Hold(t.Context(), long); err != nil {
			t.Fatal(err)
		}
	}
	tb := open(t, w.page())
	dir := screenshots(t)
	readyz, err := json.Marshal("[+] store: ok: postgres://" + scripts["latin"] + "\n[!] disk: " + scripts["cjk"] + "\n")
	if err != nil {
		t.Fatal(err)
	}
	eval[bool](tb, fmt.Sprintf(`((real) => { globalThis.fetch = (at, ...rest) => String(at).startsWith('readyz') ? Promise.resolve(new Response(%s)) : real(at, ...rest); return true; })(fetch)`, readyz))
	fits := func(where string) {
		t.Helper()
		if out := eval[[]string](tb, `[document.documentElement, ...document.querySelectorAll('.card, .banner, .verdict, .tile, .empty, .failed, .checks li, .head, .dialog, .timeline')].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.tagName + '.' + e.className + ' by ' + (e.scrollWidth - e.clientWidth))`); len(out) > 0 {
			t.Errorf("%s: too wide are %v", where, out)
		}
	}
	screens := map[string]string{"health": "health", "overview": "overview", "held": "held", "records": "records", "nothing": "find/nothing-" + scripts["latin"], "evidence": "evidence", "tail": "tail"}
	for name, long := range scripts {
		screens[name] = "find/" + url.PathEscape(long)
	}
	for _, size := range []struct{ width, letters int64 }{{320, 14}, {360, 14}, {640, 14}, {640, 28}, {820, 14}, {1280, 14}} {
		tb.do(chromedp.EmulateViewport(size.width, 740))
		eval[bool](tb, fmt.Sprintf("(document.documentElement.style.fontSize = '%dpx', true)", size.letters))
		at := fmt.Sprintf("%d-%d", size.width, size.letters)
		for name, hash := range screens {
			tb.visit("#/" + hash)
			tb.wait("document.querySelector('main h1') && !document.querySelector('.loading')")
			if hash == "overview" {
				tb.wait("document.querySelector('.banner.amber')")
			}
			fits(name + " at " + at)
			tb.picture(dir, "long-"+name+"-"+at)
		}
		tb.visit("#/held")
		for n := range len(scripts) {
			tb.wait(fmt.Sprintf("((all) => all.length === %d && (all[%d].click(), true))(document.querySelectorAll('td.do button.primary'))", len(scripts), n))
			tb.wait("document.querySelectorAll('dialog input[name=outcome]').length === 5")
			fits("a decision at " + at)
			tb.picture(dir, fmt.Sprintf("long-decision-%d-%s", n, at))
			tb.click("dialog button", "Cancel")
			tb.wait("!document.querySelector('dialog')")
		}
	}
}

// TestForcedColours: with colours of the reader's own, what is told by a colour is still told.
func TestForcedColours(t *testing.T) {
	w := newWorld(t, false)
	w.seed()
	w.stick("stuck-31")
	tb := open(t, w.page())
	dir := screenshots(t)
	features := []*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}}
	if _, err := chromedp.Call(tb.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		t.Fatal(err)
	}
	for hash, marks := range map[string]string{
		"overview":        ".meter i, .legend i",
		"find/order-1003": ".split-bar span, .bar, .mark.dot, .legend i:not(.cross), i.dot",
		"find/stuck-31":   ".bar.blue",
	} {
		tb.visit("#/" + hash)
		tb.wait(fmt.Sprintf("document.querySelector('main h1') && !document.querySelector('.loading') && document.querySelector(%q)", marks))
		if lost := eval[[]string](tb, fmt.Sprintf(`((canvas) => [...document.querySelectorAll(%q)].filter((e) => e.offsetWidth && getComputedStyle(e).backgroundColor === canvas).map((e) => e.className))(getComputedStyle(document.querySelector('.card')).backgroundColor)`, marks)); len(lost) > 0 {
			t.Errorf("on %s these look like nothing: %v", hash, lost)
		}
		tb.picture(dir, "forced-"+strings.ReplaceAll(hash, "/", "-"))
	}
}

// TestFocusFollows: whoever goes to a screen by the keyboard is at its heading, and what takes
// time is said.
func TestFocusFollows(t *testing.T) {
	way := newFlaky(t, newWorld(t, false).page())
	tb := open(t, way.URL)
	tb.shows("No delivery yet")
	if at := eval[string](tb, "document.activeElement.tagName"); at != "BODY" {
		t.Errorf("a page that was just opened has the focus at %s", at)
	}
	at := func(heading string) {
		t.Helper()
		tb.wait(fmt.Sprintf("document.activeElement.tagName === 'H1' && document.activeElement.firstChild.textContent === %q", heading)) // what may follow names the node
	}
	tb.press("g r")
	at("Records")
	eval[bool](tb, "(document.querySelector('nav.side a[href=\"#/held\"]').focus(), true)")
	tb.do(chromedp.KeyEvent(kb.Enter))
	at("Held and in flight")
	tb.press("/")
	tb.do(chromedp.KeyEvent("nobody"), chromedp.KeyEvent(kb.Enter))
	at("No such call")
	tb.wait("document.querySelector('.sr[role=status]').textContent === 'Nothing is named nobody'")
	// A filter keeps the focus while one types, although the address follows it.
	tb.visit("#/tail")
	at("Live tail")
	tb.fill("main input", "charge")
	tb.wait("location.hash.includes('charge') && document.activeElement.matches('main input')")
	way.does.Store(hanging)
	tb.visit("#/operations")
	at("Operations")
	tb.wait("document.querySelector('.sr[role=status]').textContent === 'Loading operations…'")
	way.does.Store(passing)
}
