package dashboard_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
)

// tile waits until a tile of the overview shows a number.
func (tb *tab) tile(name string, want int) {
	tb.t.Helper()
	tb.wait(fmt.Sprintf(`[...document.querySelectorAll('.tile')].find((e) => e.querySelector('h2').textContent === %q).querySelector('.big').textContent === '%d'`, name, want))
}

// lists waits until a card of the overview has a row of a key that ends with a number.
func (tb *tab) lists(card, key string, want int) {
	tb.t.Helper()
	tb.wait(fmt.Sprintf(`[...[...document.querySelectorAll('section.card')].find((e) => e.querySelector('h2').textContent.startsWith(%q)).querySelectorAll('tbody tr')]
		.some((row) => row.querySelector('.key').textContent === %q && row.querySelector('td.n').textContent === '%d')`, card, key, want))
}

// late is more than a busy machine needs to show a figure, and less than the minute after which
// it would come even if nobody had counted the running minute.
const late = 30 * time.Second

// TestFiguresAreShownLive leaves the overview open, and nobody touches it while deliveries
// arrive: it shows the share of duplicates, simultaneous deliveries and failing calls.
func TestFiguresAreShownLive(t *testing.T) {
	clause.Proves(t, "MAP-MON.4")
	w := newWorld(t, false)
	tb := open(t, w.page())
	tb.shows("No delivery yet")
	eval[bool](tb, "(window.untouched = true)") // a reload would forget it
	began := time.Now()
	live := func(what string) {
		t.Helper()
		took := time.Since(began).Round(time.Millisecond)
		if took > late {
			t.Fatalf("%s were seen after %v", what, took)
		}
		t.Logf("%s were seen after %v", what, took)
		began = time.Now()
	}
	for range 4 {
		w.send("/charges", "order-1", `{"amount":1}`)
	}
	tb.tile("Duplicates stopped", 3)
	live("four deliveries")
	tb.tile("Deliveries", 4)
	tb.shows("75 % of all answers")
	tb.wait(`[...document.querySelectorAll('tbody tr')].some((row) => /payments.charge\s*4\s*3\s*75 %/.test(row.innerText))`)
	tb.lists("Repeated keys", "order-1", 3)

	w.stick("stuck-1")
	for range 30 { // at least fifteen of them in one minute
		w.send("/orders", "stuck-1", `{"items":7}`)
	}
	tb.tile("At the same time", 31)
	tb.wait(`[...document.querySelectorAll('section.card')].find((e) => e.querySelector('h2').textContent.startsWith('Keys that come at the same time')).innerText.includes('stuck-1')`)
	live("deliveries at the same time")

	for range 3 {
		w.send("/orders", "flaky-1", `{"items":1}`)
	}
	tb.tile("Failed attempts", 2)
	tb.lists("Calls that keep failing", "flaky-1", 2)
	live("failing calls")

	w.Engine().Internal().Answered(t.Context(), semel.Delivered{Door: "http", FailedOpen: true, ID: semel.ID{Operation: "orders.create"}})
	tb.wait(`document.querySelector('.banner.red').innerText.startsWith('Failing open. 1 ')`)
	tb.tile("Deliveries", 4+32+3)
	if !eval[bool](tb, "window.untouched === true") {
		t.Error("the page was loaded again")
	}
}
