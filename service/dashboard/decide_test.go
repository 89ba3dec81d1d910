package dashboard_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image/png"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// TestDecide: order and amount are beside each decision, its payload is shown to who asks, and
// nothing is chosen before the operator has.
func TestDecide(t *testing.T) {
	w := newWorld(t, false)
	w.send("/charges", "lost-1", `{"order":"9911","amount":4200}`)
	w.send("/orders", "lost-2", `{"items":"three cups"}`)
	tb := open(t, w.page())
	for _, hash := range []string{"#/held", "#/records"} {
		tb.visit(hash)
		tb.wait("['order', 'amount'].every((n) => [...document.querySelectorAll('th')].some((e) => e.innerText === n))")
		tb.wait("[...document.querySelectorAll('tr')].some((r) => ['lost-1', '9911', '4200'].every((v) => r.innerText.includes(v)))")
	}
	row := func(key string) string {
		return fmt.Sprintf("[...document.querySelectorAll('tr')].find((r) => r.innerText.includes(%q) && r.querySelector('td.do button'))", key)
	}
	tb.visit("#/held")
	tb.wait("(" + row("lost-2") + ").querySelector('td.do button').click() === undefined")
	tb.wait("document.querySelectorAll('dialog input[name=outcome]').length === 5")
	if strings.Contains(tb.text(), "three cups") {
		t.Error("a payload is shown to who has not asked")
	}
	tb.click("dialog button", "Show")
	tb.shows("three cups")
	tb.click("dialog button", "Cancel")

	tb.wait("(" + row("lost-1") + ").querySelector('td.do button').click() === undefined")
	tb.wait("document.querySelectorAll('dialog input[name=outcome]').length === 5")
	for _, want := range []string{"9911", "4200", "acme"} {
		tb.wait(fmt.Sprintf("document.querySelector('dialog').innerText.includes(%q)", want))
	}
	if n := eval[int](tb, "document.querySelectorAll('dialog input:checked').length"); n != 0 {
		t.Errorf("%d answers are chosen before the operator has said anything", n)
	}
	if lost := eval[[]string](tb, `fetch('v1/operations/payments.charge/choices').then((r) => r.json()).then((list) => list.choices.filter((c) => c.outcome !== 'abandoned').flatMap((c) => [c.says, c.retries]).filter((text) => !document.querySelector('dialog').innerText.includes(text)))`); len(lost) > 0 {
		t.Errorf("the service says %q, and the dialog doesn't", lost)
	}
	sends := func() bool { return eval[bool](tb, "!document.querySelector('dialog footer button.primary').disabled") }
	tb.fill("textarea[name=reason]", "seen at the bank")
	if sends() {
		t.Error("a settlement without an outcome can be sent")
	}
	tb.click("dialog label.radio b", "It was done")
	tb.wait("document.querySelector('.lacks').innerText === 'Still to say: the answer.'")
	if sends() {
		t.Error("nobody has said the answer, and it can be sent")
	}
	tb.click("dialog label.radio b", "It was done, and nobody knows the answer")
	tb.wait("document.querySelector('.lacks').innerText === ''")
	tb.click("dialog button", "Settle")
	tb.wait("!document.querySelector('dialog')")
	if status, text := w.send("/charges", "lost-1", `{"order":"9911","amount":4200}`); status != http.StatusGone {
		t.Errorf("the retry gets %d %s", status, text)
	}
}

// TestAskNow: the reconciler is asked when an operator wants it, an hour before its time.
func TestAskNow(t *testing.T) {
	w := newWorld(t, false)
	w.send("/refunds", "lost-1", `{"order":"9911"}`)
	tb := open(t, w.page())
	tb.visit("#/held")
	tb.click("td.do button", "Settle")
	answer := fmt.Sprintf(`{"outcome":"completed","status":201,"body":%q}`, base64.StdEncoding.EncodeToString([]byte(`{"refund":"re_1"}`)))
	w.upstream.found.Store(&answer)
	tb.click("dialog button", "Ask the reconciler now")
	// "Asked at …" stands there only until the answer is seen, which may be at once.
	tb.shows("Somebody has settled it meanwhile: it is completed")
	if status, text := w.send("/refunds", "lost-1", `{"order":"9911"}`); status != 201 || text != `{"refund":"re_1"}` {
		t.Errorf("the retry gets %d %s", status, text)
	}
	w.send("/charges", "lost-2", `{"amount":1}`)
	tb.visit("#/find/lost-2")
	tb.shows("nobody knows whether its work was done")
	if strings.Contains(tb.text(), "Ask the reconciler") {
		t.Error("a reconciler is offered that isn't there")
	}
}

// TestGroups: calls with one cause are decided about together, and each has its own result.
func TestGroups(t *testing.T) {
	w := newWorld(t, false)
	for n := range 20 {
		w.send("/charges", fmt.Sprintf("lost-%02d", n), fmt.Sprintf(`{"order":"o-%d","amount":%d}`, n, n))
	}
	w.send("/orders", "lost-other", `{"items":1}`)
	tb := open(t, w.page())
	dir := screenshots(t)
	tb.visit("#/held")
	tb.shows("20 calls of payments.charge")
	tb.wait("/the upstream did not answer, begun (at|between) [0-9:]{8}/.test(document.querySelector('tr.group').innerText)")
	tb.picture(dir, "held-group")
	tb.click("button", "Show the other 15")
	tb.wait("[...document.querySelectorAll('tr')].filter((r) => /lost-\\d\\d/.test(r.innerText)).length === 20")
	tb.do(chromedp.EmulateViewport(360, 740))
	if out := eval[[]string](tb, `[...document.querySelectorAll('td.do button')].filter((e) => { const own = e.getBoundingClientRect(), card = e.closest('.card').getBoundingClientRect(); return own.left < card.left || own.right > card.right || own.height < 36; }).map((e) => e.textContent)`); len(out) > 0 {
		t.Errorf("on a phone, these can't be pressed: %v", out)
	}
	tb.picture(dir, "phone-group")
	tb.do(chromedp.EmulateViewport(1280, 860))
	tb.click("td.do button", "Settle all 20")
	tb.wait("document.querySelectorAll('dialog .calls tbody tr').length === 20 && document.querySelectorAll('dialog input[name=outcome]').length === 5")
	// Somebody else decides about one meanwhile.
	id := semel.ID{Tenant: "acme", Principal: "shop", Operation: "payments.charge", Key: "lost-07"}
	page, err := w.Engine().Search(t.Context(), store.Query{Held: true, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range page.Records {
		if rec.ID.Key == id.Key {
			id = rec.ID
		}
	}
	if _, err := w.Engine().Settle(t.Context(), id, semel.Settlement{Outcome: semel.DispositionAborted}, "by telephone"); err != nil {
		t.Fatal(err)
	}
	tb.click("dialog label.radio b", "Nothing happened")
	tb.fill("textarea[name=reason]", "the bank was down")
	tb.picture(dir, "group-dialog")
	tb.click("dialog footer button", "Settle")
	tb.shows("19 done, 1 refused")
	tb.wait("((r) => r.innerText.includes('lost-07') && r.innerText.includes('The record is not held.'))(document.querySelector('dialog .calls tbody tr'))")
	if n := eval[int](tb, "[...document.querySelectorAll('dialog .calls tbody tr')].filter((r) => r.lastChild.innerText === 'done').length"); n != 19 {
		t.Errorf("%d calls have the result that they have", n)
	}
	if n := w.held(); n != 1 {
		t.Errorf("%d calls are held", n)
	}
	tb.accessible(axe(t), "the results of a group")
}

// TestShare: a timeline becomes a link or a picture.
func TestShare(t *testing.T) {
	w := newWorld(t, false)
	w.storm("slow-order-1", 9)
	tb := open(t, w.page())
	for _, theme := range []string{"light", "dark"} {
		tb.theme(theme)
		tb.visit("#/find/slow-order-1")
		tb.shows("Executed once")
		eval[bool](tb, "(URL.createObjectURL = (blob) => { blob.arrayBuffer().then((b) => { globalThis.saved = btoa(Array.from(new Uint8Array(b), (c) => String.fromCharCode(c)).join('')); }); return 'data:,'; }, Object.defineProperty(navigator, 'clipboard', { configurable: true, value: { writeText: async (text) => { globalThis.copied = text; } } }), true)")
		tb.click("button", "Copy link")
		tb.wait("globalThis.copied === location.href")
		tb.click("button", "Save picture")
		tb.wait("globalThis.saved")
		data, err := base64.StdEncoding.DecodeString(eval[string](tb, "globalThis.saved"))
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		colours := map[[3]uint32]bool{}
		for y := range img.Bounds().Dy() {
			for x := range img.Bounds().Dx() {
				r, g, b, _ := img.At(x, y).RGBA()
				colours[[3]uint32{r >> 11, g >> 11, b >> 11}] = true
			}
		}
		if size := img.Bounds().Size(); size.X < 1000 || size.Y < 300 || len(colours) < 20 {
			t.Errorf("a picture of %v with %d colours", size, len(colours))
		}
		keep(t, screenshots(t), "shared-"+theme+".png", data)
	}
}

// TestConflictsByOrder: a conflict is listed with the order that it is about.
func TestConflictsByOrder(t *testing.T) {
	w := newWorld(t, false)
	w.send("/charges", "order-1", `{"order":"9911","amount":4200}`)
	w.send("/charges", "order-1", `{"order":"9911","amount":4300}`)
	tb := open(t, w.page())
	tb.visit("#/conflicts")
	tb.wait("[...document.querySelectorAll('tr')].some((r) => ['order-1', '9911', '4200'].every((v) => r.innerText.includes(v)))")
	if heads := eval[[]string](tb, "[...document.querySelectorAll('th')].map((e) => e.innerText)"); !slices.Contains(heads, "amount") {
		t.Errorf("the columns are %v", heads)
	}
}
