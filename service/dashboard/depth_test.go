package dashboard_test

import (
	"fmt"
	"strings"
	"testing"
)

// compares opens the comparison of a conflict whose payloads were kept.
func (tb *tab) compares() {
	tb.t.Helper()
	tb.visit("#/conflicts")
	tb.wait("[...document.querySelectorAll('tr')].some((r) => r.innerText.includes('cart-99') && (r.querySelector('button').getAttribute('aria-expanded') === 'true' || r.querySelector('button').click(), true))")
	tb.click("button", "Show the values")
	tb.shows("$.items[0].quantity")
}

// explains pastes a request and has it explained.
func (tb *tab) explains() {
	tb.t.Helper()
	tb.visit("#/operations")
	tb.fill("textarea[name=request]", "POST http://localhost/charges\nIdempotency-Key: order-7\nAuthorization: Bearer "+callerToken+"\nContent-Type: application/json\n\n{}")
	tb.click("button", "Explain")
	tb.shows("the call is executed once")
}

// TestConflictsCompared: the list survives the events, payloads are shown to who asks, and
// whether they were kept is said.
func TestConflictsCompared(t *testing.T) {
	w := newWorld(t, true)
	w.seed()
	tb := open(t, w.page())
	tb.signIn(adminToken)
	tb.visit("#/conflicts")
	tb.shows("order-1003")
	open := func(key string) {
		tb.wait(fmt.Sprintf("[...document.querySelectorAll('tr')].some((r) => r.innerText.includes(%q) && (r.querySelector('button').click(), true))", key))
	}
	open("cart-99")
	tb.shows("$.total.amount")
	if text := tb.text(); strings.Contains(text, "4300") || !strings.Contains(text, "•••") {
		t.Error("values are shown to who has not asked")
	}
	tb.click("button", "Show the values")
	for _, want := range []string{"4300", "$.items[0].quantity", "$.gift", "added", "9007199254740993", "9007199254740992"} {
		tb.shows(want)
	}
	if text := tb.text(); strings.Contains(text, "$.items[1]") || strings.Contains(text, "$.total.currency") {
		t.Errorf("what is the same is listed:\n%s", text)
	}
	open("order-1003")
	tb.shows("doesn't keep payloads")
	tb.visit("#/find/cart-99")
	tb.shows("Refused payloads")
	tb.visit("#/settings")
	tb.click("button", "Sign out")
	tb.signIn(viewerToken)
	tb.visit("#/conflicts")
	open("cart-99")
	tb.shows("needs the role operator")
}

// TestExplained: a pasted request is explained by the rules that serve, and not done.
func TestExplained(t *testing.T) {
	w := newWorld(t, false)
	tb := open(t, w.page())
	tb.explains()
	tb.shows("takes it")
	tb.shows("The path has /charges where it has /orders.")
	tb.fill("textarea[name=request]", "POST http://localhost/charges\nContent-Type: application/json\n\n{}")
	tb.click("button", "Explain")
	tb.shows("It is refused, and nothing is executed.")
	tb.fill("textarea[name=request]", "rm -rf /")
	tb.click("button", "Explain")
	tb.shows("not that of a request")
	if n := w.upstream.times("order-7"); n != 0 {
		t.Errorf("the upstream was called %d times", n)
	}
}
