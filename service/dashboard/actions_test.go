package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// TestSettle: an operator finds a held call by its key, sees why it's held, settles it, and
// sees who did; the client's retry gets the answer.
func TestSettle(t *testing.T) {
	w := newWorld(t, true)
	w.send("/charges", "lost-1", `{"amount":1}`)
	tb := open(t, w.page())
	tb.signIn(adminToken)
	tb.press("/")
	tb.do(chromedp.KeyEvent("lost-1"), chromedp.KeyEvent(kb.Enter))
	tb.shows("the upstream did not answer")
	tb.press("s")
	tb.shows("It was done")
	if !eval[bool](tb, "document.querySelector('dialog button.primary').disabled") {
		t.Error("a settlement without a reason can be sent")
	}
	tb.click("dialog label.radio b", "It was done")
	tb.fill("textarea[name=text]", `{"charge":"ch_by_hand"}`)
	tb.fill("textarea[name=reason]", "ticket 7: seen at the bank")
	tb.click("dialog button", "Settle")
	tb.wait("!document.querySelector('dialog')")
	tb.shows("ticket 7: seen at the bank")
	tb.shows("admin")
	if status, text := w.send("/charges", "lost-1", `{"amount":1}`); status != 200 || text != `{"charge":"ch_by_hand"}` {
		t.Errorf("the retry gets %d %s", status, text)
	}
}

// TestRelease: a held call is let go, and the next delivery runs.
func TestRelease(t *testing.T) {
	w := newWorld(t, false)
	w.send("/charges", "lost-1", `{"amount":1}`)
	tb := open(t, w.page())
	tb.visit("#/held")
	tb.click("button", "Release")
	fences := tb.fences(w.seen("lost-1"))
	tb.shows("it is done twice")
	tb.fill("textarea[name=reason]", "the bank never got it")
	tb.click("dialog button", "Release")
	tb.shows("Nothing is held")
	fences(1)
	w.send("/charges", "lost-1", `{"amount":1}`)
	tb.shows("lost-1")
	if n := w.upstream.times("lost-1"); n != 2 {
		t.Errorf("the upstream got it %d times", n)
	}
}

// TestPurge: a purged record is gone, and its page says so.
func TestPurge(t *testing.T) {
	w := newWorld(t, false)
	w.send("/charges", "order-1", `{"amount":1}`)
	tb := open(t, w.page())
	tb.visit("#/find/order-1")
	tb.click("button", "Purge")
	fences := tb.fences(w.seen("order-1"))
	tb.fill("textarea[name=reason]", "a test order")
	tb.click("dialog button", "Purge")
	tb.shows("This record isn't here")
	fences(1)
	tb.visit("#/find/order-1")
	tb.shows("Nothing is named order-1")
}

// TestBulk: everything that a query selects is settled with one reason, after a dry run that
// changes nothing.
func TestBulk(t *testing.T) {
	w := newWorld(t, false)
	for n := range 25 {
		w.send("/charges", fmt.Sprintf("lost-%d", n), `{"amount":1}`)
	}
	w.send("/charges", "order-1", `{"amount":1}`)
	tb := open(t, w.page())
	tb.visit("#/records?q=operation%3Apayments.charge")
	tb.shows("26 records")
	tb.click("button", "Settle…")
	tb.click("dialog button", "Dry run")
	tb.shows("26 looked at, 25 fit")
	tb.shows("Nothing was changed")
	w.again("lost-0")
	if n := w.held(); n != 25 {
		t.Errorf("after a dry run, %d calls are held", n)
	}
	tb.fill("textarea[name=reason]", "the bank has them all")
	tb.click("dialog label.radio b", "It was done, and nobody knows the answer")
	tb.click("dialog button.primary", "Settle")
	tb.shows("24 done, 1 refused")
	tb.shows("a later attempt than the one you saw")
	if n := w.held(); n != 1 {
		t.Errorf("%d calls are held", n)
	}
	tb.click("dialog button", "Done")
	tb.shows("decided by local: the bank has them all")
}

// held counts the held calls.
func (w *world) held() int {
	w.t.Helper()
	page, err := w.Engine().Search(w.t.Context(), store.Query{Held: true, Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return len(page.Records)
}

// TestChosen: the chosen records are acted on, and no others.
func TestChosen(t *testing.T) {
	w := newWorld(t, false)
	for n := range 4 {
		w.send("/charges", fmt.Sprintf("lost-%d", n), `{"amount":1}`)
	}
	tb := open(t, w.page())
	tb.visit("#/records?q=state%3Aheld")
	tb.shows("4 records")
	tb.press("j", "x", "j", "x")
	tb.shows("2 selected")
	tb.click("button", "Release…")
	fences := tb.fences(w.seen("lost-3"), w.seen("lost-2"))
	tb.fill("textarea[name=reason]", "nothing happened")
	tb.click("dialog button.danger", "Release")
	tb.shows("2 done")
	fences(2)
	if n := w.held(); n != 2 {
		t.Errorf("%d calls are held", n)
	}
}

// TestExport: what a query selects becomes a file, and no cell of it is a formula.
func TestExport(t *testing.T) {
	w := newWorld(t, false)
	w.send("/charges", "=cmd()", `{"amount":1}`)
	w.send("/charges", "order-1", `{"amount":1}`)
	tb := open(t, w.page())
	tb.visit("#/records")
	tb.shows("2 records")
	eval[bool](tb, "(URL.createObjectURL = (blob) => { blob.text().then((t) => { globalThis.exported = t; }); return 'data:,'; }, true)")
	for _, format := range []string{"CSV", "NDJSON"} {
		tb.click("button", format)
		tb.click("dialog button", "Export")
		tb.wait("globalThis.exported")
		text := eval[string](tb, "globalThis.exported")
		eval[bool](tb, "(globalThis.exported = '', true)")
		if !strings.Contains(text, "order-1") || strings.Count(strings.TrimSpace(text), "\n") != map[string]int{"CSV": 2, "NDJSON": 1}[format] {
			t.Errorf("%s: %s", format, text)
		}
		if format == "CSV" && !strings.Contains(text, `,"'=cmd()"`) {
			t.Errorf("a key became a formula: %s", text)
		}
		tb.wait("!document.querySelector('dialog')")
	}
}

// TestMessages: a parked message is delivered again, or given up.
func TestMessages(t *testing.T) {
	w := newWorld(t, false)
	w.execution()
	tb := open(t, w.page())
	tb.visit("#/dispatch")
	for range 2 { // its receiver refuses it again
		tb.wait("[...document.querySelectorAll('button')].some((b) => b.textContent === 'Refresh' && (b.click(), true)) && document.querySelector('td.do button')")
		tb.click("td.do button", "Deliver again")
		tb.fill("textarea[name=reason]", "the receiver is back")
		tb.click("dialog button", "Deliver again")
		tb.wait("!document.querySelector('dialog')")
	}
	tb.wait("[...document.querySelectorAll('button')].some((b) => b.textContent === 'Refresh' && (b.click(), true)) && document.querySelector('td.do button')")
	tb.click("td.do button", "Discard")
	tb.fill("textarea[name=reason]", "nobody wants it")
	tb.click("dialog button", "Discard")
	tb.shows("No message waits")
}

// TestVerify: the page verifies the log, and each entry of it.
func TestVerify(t *testing.T) {
	w := newWorld(t, false)
	w.send("/charges", "order-1", `{"amount":1}`)
	w.send("/charges", "order-1", `{"amount":1}`)
	tb := open(t, w.page())
	tb.visit("#/evidence")
	tb.shows("proved")
	tb.click("button", "Verify the log")
	tb.shows("The log is intact")
	// A leaf that was changed no longer leads to the root.
	ok := eval[[]bool](tb, `import('/ui/js/evidence.js').then(async (m) => {
		const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
		let list, e;
		while (!e) { // until two entries are signed, so that one has a path
			list = await (await fetch('/v1/evidence/entries?newest=true')).json();
			e = list.entries.find((e) => e.proof?.length);
		}
		const leaf = m.canonical(e.leaf), path = e.proof.map(bytes);
		const leads = async () => { const root = await m.rootOf(e.n, list.size, leaf, path); return !!root && btoa(String.fromCharCode(...root)) === list.root; };
		const before = await leads();
		leaf[5] ^= 1;
		return [before, await leads()];
	})`)
	if !ok[0] || ok[1] {
		t.Errorf("the entry leads to the root: %v; after a change: %v", ok[0], ok[1])
	}
}

// TestTail: the live tail shows what happens, filters it, and stands still when it is told.
func TestTail(t *testing.T) {
	w := newWorld(t, false)
	tb := open(t, w.page())
	tb.visit("#/tail")
	tb.shows("Waiting for the first delivery")
	w.send("/charges", "order-1", `{"amount":1}`)
	w.send("/orders", "cart-1", `{"amount":1}`)
	tb.shows("cart-1")
	tb.fill("main input", "charge -ended")
	tb.wait("location.hash.includes('charge')")
	tb.wait("!document.body.innerText.includes('cart-1') && document.body.innerText.includes('order-1')")
	tb.click("button", "Pause")
	w.send("/charges", "order-2", `{"amount":1}`)
	tb.wait("document.body.innerText.includes('Go on (')")
	if strings.Contains(tb.text(), "order-2") {
		t.Error("a paused tail goes on")
	}
	tb.click("button", eval[string](tb, "[...document.querySelectorAll('button')].find((b) => b.textContent.startsWith('Go on')).textContent.trim()"))
	tb.shows("order-2")
}

// TestKeys: the page can be used without a mouse.
func TestKeys(t *testing.T) {
	w := newWorld(t, false)
	w.send("/charges", "order-1", `{"amount":1}`)
	w.send("/charges", "order-2", `{"amount":1}`)
	tb := open(t, w.page())
	tb.shows("Overview")
	tb.press("g r")
	tb.shows("2 records")
	tb.press("j", "j", "Enter")
	tb.wait("document.querySelector('.title-key')?.textContent === 'order-1'")
	tb.do(chromedp.KeyEvent(kb.Escape))
	tb.shows("2 records")
	tb.press("?")
	tb.wait("document.querySelector('dialog[open]')?.innerText.includes('settle the row')")
	tb.do(chromedp.KeyEvent(kb.Escape))
	tb.wait("!document.querySelector('dialog')")
	tb.press("/")
	tb.wait("document.activeElement.id === 'find'")
	// Suggestions for the query, by arrow and Enter.
	tb.fill("input[name=q]", "sta")
	tb.wait("document.querySelector('#suggestions')?.innerText.includes('state:')")
	tb.press("ArrowDown", "Enter")
	tb.wait("document.querySelector('input[name=q]').selectionStart === 6")
	tb.do(chromedp.KeyEvent("comp"))
	tb.wait("document.querySelector('#suggestions')?.innerText.includes('state:completed')")
	tb.press("ArrowDown", "Enter")
	tb.wait("document.querySelector('input[name=q]').value === 'state:completed '")
	tb.do(chromedp.KeyEvent(kb.Enter))
	tb.wait("location.hash.includes('state%3Acompleted')")
	tb.wait("document.querySelector('input[name=q]').value === 'state:completed'") // as the address has it
	tb.fill("input[name=q]", "colour:red")
	tb.do(chromedp.KeyEvent(kb.Enter))
	tb.shows("there is no such qualifier")
}

// TestPayload: an answer is shown when somebody asks for it, with its numbers as they were.
func TestPayload(t *testing.T) {
	w := newWorld(t, false)
	w.send("/charges", "order-1", `{"amount":1}`)
	tb := open(t, w.page())
	tb.visit("#/find/order-1")
	tb.shows("Show the body")
	if strings.Contains(tb.text(), "ch_order-1") {
		t.Error("a payload is shown to who has not asked")
	}
	tb.wait("[...document.querySelectorAll('button')].some((b) => b.textContent.startsWith('Show the body') && (b.click(), true))")
	tb.shows("9007199254740993")
}

// TestManyRows: ten thousand records scroll as fifty do.
func TestManyRows(t *testing.T) {
	w := newWorld(t, false)
	for n := range 10_000 {
		_, err := w.Engine().Do(t.Context(), semel.Call{Tenant: "acme", Operation: "default", Key: fmt.Sprintf("k-%05d", n)}, func(context.Context, semel.Execution) (semel.Result, error) { return semel.Result{}, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	tb := open(t, w.page())
	tb.visit("#/records")
	tb.wait("document.querySelector('.rows') && ((e) => { e.scrollTop = e.scrollHeight; return document.querySelector('.count').innerText.startsWith('10000 records'); })(document.querySelector('.rows'))")
	got := eval[[]float64](tb, `new Promise((done) => {
		const box = document.querySelector('.rows'), frames = [];
		let last = performance.now(), n = 0;
		const step = () => {
			const now = performance.now();
			frames.push(now - last);
			last = now;
			box.scrollTop = (n * 7919 * 37) % box.scrollHeight;
			if (++n < 60) requestAnimationFrame(step);
			else done([document.querySelectorAll('.rows tbody tr').length, frames.sort((a, b) => a - b)[30]]);
		};
		requestAnimationFrame(step);
	})`)
	t.Logf("%.0f rows are drawn, and a frame takes %.1f ms in the middle", got[0], got[1])
	if got[0] > 120 {
		t.Errorf("%.0f rows are drawn", got[0])
	}
}

// TestSelfContained: the page needs this server and nothing else, within its budget.
func TestSelfContained(t *testing.T) {
	w := newWorld(t, false)
	tb := open(t, w.page())
	tb.shows("Overview")
	tb.visit("#/evidence")
	tb.shows("Checkpoint")
	modules, err := filepath.Glob("web/*/*.js")
	if err != nil {
		t.Fatal(err)
	}
	tb.wait(fmt.Sprintf("performance.getEntriesByType('resource').filter((e) => e.name.endsWith('.js')).length >= %d", len(modules)-1)) // some come later, and share.js to who presses its button
	type load struct {
		Hosts, Inline []string
		Bytes, Start  float64
	}
	got := eval[load](tb, `(() => {
		const all = performance.getEntriesByType('resource');
		// Each file once: a browser that is in no hurry fetches the icon again.
		const own = [...new Map(all.filter((e) => e.name.includes('/ui/') && !e.name.includes('/ui/session')).map((e) => [e.name, e])).values()];
		return {
			Hosts: all.map((e) => new URL(e.name).origin).filter((o) => o !== location.origin),
			Inline: [...document.querySelectorAll('script:not([src]), style, [onclick]')].map((e) => e.outerHTML),
			Bytes: own.reduce((n, e) => n + e.decodedBodySize, 0),
			Start: performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd,
		};
	})()`)
	t.Logf("%.0f bytes; the document is ready after %.0f ms", got.Bytes, got.Start)
	if len(got.Hosts) > 0 || len(got.Inline) > 0 || got.Bytes > 300_000 || got.Bytes == 0 {
		t.Errorf("%+v", got)
	}
}

// TestSignIn: a form takes a token and keeps it in a session that no other page can use.
func TestSignIn(t *testing.T) {
	w := newWorld(t, true)
	w.send("/charges", "lost-1", `{"amount":1}`)
	tb := open(t, w.page())
	tb.signIn("semel_wrong")
	tb.shows("unknown")
	tb.signIn(viewerToken)
	tb.visit("#/held")
	tb.shows("lost-1")
	if strings.Contains(tb.text(), "Settle") {
		t.Error("a viewer is offered what they may not do")
	}
	if eval[string](tb, "document.cookie") != "" {
		t.Error("a script can read the cookie")
	}
	// The cookie alone, which the browser sends by itself, authenticates nothing.
	if status := eval[int](tb, "fetch('v1/records').then((r) => r.status)"); status != http.StatusUnauthorized {
		t.Errorf("with the cookie alone: %d", status)
	}
	tb.do(chromedp.Reload())
	tb.shows("lost-1")
	tb.visit("#/settings")
	tb.click("button", "Sign out")
	tb.wait("document.querySelector('input[name=token]')")
	tb.picture(screenshots(t), "sign-in")
	tb.accessible(axe(t), "sign-in")
}

func (tb *tab) signIn(token string) {
	tb.t.Helper()
	tb.fill("input[name=token]", token)
	tb.click("button", "Sign in")
	tb.wait("document.querySelector('nav') || document.querySelector('.failed')")
}

// TestConfirm: a call that waits for a person's yes is confirmed on its page, and runs when its caller
// sends it again.
func TestConfirm(t *testing.T) {
	p := newProgram(t, true, false)
	if err := p.Register(semel.Operation{Name: "pay", Confirmation: &semel.ConfirmationPolicy{}}); err != nil {
		t.Fatal(err)
	}
	call := semel.Call{Principal: "shop", Operation: "pay", Key: "pay-1"}
	if _, err := p.Begin(t.Context(), call); !errors.Is(err, &semel.Error{Code: semel.CodeConfirmationRequired}) {
		t.Fatal(err)
	}
	tb := open(t, p.page)
	tb.visit("#/record/" + call.ID("").Encode())
	tb.shows("it waits for its confirmation, by its caller or an operator")
	tb.click("button", "Confirm")
	asked, err := p.Lookup(t.Context(), call.ID(""))
	if err != nil {
		t.Fatal(err)
	}
	fences := tb.fences(&asked)
	tb.fill("textarea[name=reason]", "she called")
	tb.click("dialog button", "Confirm")
	tb.wait("!document.querySelector('dialog')")
	fences(1)
	tb.shows(": she called; it runs when its caller asks again")
	tb.shows("It was confirmed, as the operator")
	if buttons := eval[string](tb, "[...document.querySelectorAll('button')].map((b) => b.innerText).join()"); strings.Contains(buttons, "Confirm") {
		t.Errorf("it can be confirmed again: %s", buttons)
	}
	if ans, err := p.Begin(t.Context(), call); err != nil || ans.Decision != semel.Execute {
		t.Errorf("%s, %v", ans.Decision, err)
	}
}
