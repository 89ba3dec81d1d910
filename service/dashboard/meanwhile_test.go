package dashboard_test

import (
	"fmt"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// seen is the record with a key, as a screen shows it now.
func (w *world) seen(key string) *semel.Record {
	w.t.Helper()
	page, err := w.Engine().Search(w.t.Context(), store.Query{Key: key})
	if err != nil || len(page.Records) != 1 {
		w.t.Fatalf("%d records have the key %s, %v", len(page.Records), key, err)
	}
	return &page.Records[0]
}

// again is somebody else, who lets a held call run again; it is held again.
func (w *world) again(key string) {
	w.t.Helper()
	if _, err := w.Engine().Settle(w.t.Context(), w.seen(key).ID, semel.Settlement{Outcome: semel.DispositionAborted, Who: "ben"}, "it never arrived"); err != nil {
		w.t.Fatal(err)
	}
	if w.send("/charges", key, `{"amount":1}`); !w.seen(key).Held {
		w.t.Fatal("it is not held again")
	}
}

// fences records what the page sends from now on. The function that it returns expects n bodies,
// with the fences of the records that the page showed.
func (tb *tab) fences(shown ...*semel.Record) func(n int) {
	tb.t.Helper()
	eval[bool](tb, `(() => {
		const before = window.fetch;
		window.sent = [];
		window.fetch = (path, options) => { if (options?.body) window.sent.push(options.body); return before(path, options); };
		return true;
	})()`)
	return func(n int) {
		tb.t.Helper()
		for _, rec := range shown {
			if got := eval[int](tb, fmt.Sprintf("window.sent.filter((b) => b.includes('\"fence\":%d')).length", rec.Fence)); got != 1 {
				tb.t.Errorf("%d bodies name the fence of %s: %s", got, rec.ID.Key, eval[string](tb, "window.sent.join()"))
			}
		}
		if got := eval[int](tb, "window.sent.length"); got != n {
			tb.t.Errorf("%d bodies were sent, not %d", got, n)
		}
	}
}

// TestALaterAttempt: an open dialog stays with the attempt that it was opened for, and says when
// there is a later one.
func TestALaterAttempt(t *testing.T) {
	w := newWorld(t, false)
	w.send("/charges", "lost-1", `{"amount":1}`)
	tb := open(t, w.page())
	for _, screen := range []string{"#/held", "#/find/lost-1"} {
		tb.visit(screen)
		tb.click("button", "Settle")
		tb.click("dialog label.radio b", "Nothing happened")
		tb.fill("textarea[name=reason]", "not charged, says the bank")
		w.again("lost-1")
		tb.shows("The call has a later attempt than the one you saw: it is held")
		if eval[bool](tb, "[...document.querySelectorAll('dialog button')].some((b) => b.innerText === 'Settle')") {
			t.Error("the next attempt can be settled by what was said of the first")
		}
		tb.click("dialog button", "Close")
	}
	tb.visit("#/held")
	tb.click("button", "Settle")
	fences := tb.fences(w.seen("lost-1"))
	tb.click("dialog label.radio b", "Nothing happened")
	tb.fill("textarea[name=reason]", "not charged, says the bank")
	tb.click("dialog button", "Settle")
	tb.shows("Nothing is held")
	fences(1)
}
