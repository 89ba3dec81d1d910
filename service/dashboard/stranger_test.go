package dashboard_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/semelhq/semel"
)

// maxClicks is how many clicks each question may take somebody who has never seen the page.
const maxClicks = 5

// hand is a person with a mouse. Clicks are counted, and Enter is one; typing isn't.
type hand struct {
	*tab
	clicks int
}

// click moves to the middle of the first element of a kind that shows a text, and clicks
// there: what lies on top gets it.
func (h *hand) click(selector, text string) {
	h.t.Helper()
	find := fmt.Sprintf("[...document.querySelectorAll(%q)].find((e) => e.textContent.includes(%q) && !e.disabled && e.getClientRects().length)", selector, text)
	h.wait(find)
	at := eval[[]float64](h.tab, fmt.Sprintf("((e) => { e.scrollIntoView({ block: 'center' }); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })(%s)", find))
	h.do(chromedp.MouseClickXY(at[0], at[1]))
	h.clicks++
}

func (h *hand) types(text string) {
	h.t.Helper()
	h.wait("document.activeElement.matches('input, textarea')")
	h.do(chromedp.KeyEvent(text))
}

func (h *hand) enter() {
	h.t.Helper()
	h.do(chromedp.KeyEvent(kb.Enter))
	h.clicks++
}

// TestStranger counts the clicks by which the questions of somebody on call are answered,
// each from the overview on.
func TestStranger(t *testing.T) {
	w := newWorld(t, false)
	w.seed()
	for _, key := range []string{"pay-1", "pay-1-again"} {
		_, err := w.Engine().Do(t.Context(), semel.Call{Tenant: "acme", Operation: "default", Key: key, Attributes: map[string]string{"order": "9911"}},
			func(context.Context, semel.Execution) (semel.Result, error) { return semel.Result{}, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	tb := open(t, w.page())
	for _, task := range []struct {
		name string
		does func(h *hand)
	}{
		{"was order-1000 charged twice?", func(h *hand) {
			h.click("#find", "")
			h.types("order-1000")
			h.enter()
			h.shows("Executed once")    // under this key,
			h.shows("order-1000-again") // and under another
		}},
		{"was the order 9911 charged twice? Its number is no key", func(h *hand) {
			h.click("#find", "")
			h.types("9911")
			h.enter()
			h.shows("9911: 2 calls, executed twice: ")
			h.shows("found by attribute order")
		}},
		{"why is lost-4711 held?", func(h *hand) {
			h.click("a.tile", "Held")
			h.wait("[...document.querySelectorAll('tr')].some((r) => r.innerText.includes('lost-4711') && r.innerText.includes('the upstream did not answer'))")
		}},
		{"settle it", func(h *hand) {
			h.click("a.tile", "Held")
			h.click("tbody tr:last-child td.do button", "Settle") // the oldest
			h.wait("document.querySelector('dialog h2').textContent.includes('lost-4711')")
			h.click("dialog label.radio", "nobody knows the answer")
			h.click("dialog textarea[name=reason]", "")
			h.types("the bank's statement has it")
			h.click("dialog footer button", "Settle")
			h.wait("!document.querySelector('dialog') && !document.querySelector('main').innerText.includes('lost-4711')")
		}},
		{"who settled it, and why?", func(h *hand) {
			h.click("nav.side a", "Records")
			h.wait("[...document.querySelectorAll('tr')].some((r) => r.innerText.includes('lost-4711') && r.innerText.includes(\"decided by local: the bank's statement has it\"))")
		}},
		{"which operation repeats most?", func(h *hand) {
			h.wait("[...document.querySelectorAll('section')].find((s) => s.innerText.startsWith('Operations')).querySelector('tbody tr').innerText.startsWith('payments.charge')")
		}},
		{"is the log intact?", func(h *hand) {
			h.click("nav.side a", "Evidence")
			h.click("main button", "Verify the log")
			h.shows("The log is intact")
		}},
	} {
		t.Run(task.name, func(t *testing.T) {
			h := &hand{tab: &tab{t: t, ctx: tb.ctx, base: tb.base}}
			h.do(chromedp.Navigate(h.base+"/#/overview"), chromedp.Reload())
			h.shows("Duplicates stopped")
			h.wait("document.querySelector('main .banner') && !document.querySelector('main .loading')") // what is clicked doesn't move any more
			task.does(h)
			t.Logf("%d clicks", h.clicks)
			if h.clicks > maxClicks {
				t.Errorf("it takes %d clicks, more than %d", h.clicks, maxClicks)
			}
		})
	}
}
