package dashboard_test

import (
	"fmt"
	"slices"
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
	tb.fill("textarea[name=request]", "curl http://localhost/charges -H 'Idempotency-Key: order-7' -H 'Authorization: Bearer "+callerToken+"' --json '{}'")
	tb.click("button", "Explain")
	tb.shows("the call is executed once")
}

// experiments sends copies of a call to a route.
func (tb *tab) experiments() {
	tb.t.Helper()
	tb.visit("#/lab")
	tb.wait("document.querySelector('input[name=path]').value === '/charges'")
	tb.fill("input[name=key]", "slow-lab-"+fmt.Sprint(tb.next()))
	tb.click("button", "Send 10 copies")
	tb.shows("10 sent, 1 ran")
	tb.shows("has 1 attempt")
}

// shares waits until a verdict of the Lab has so many copies, each of which got one of two
// things: the first if it was sent while the call ran, which a busy machine decides.
func (tb *tab) shares(copies int, early, late string) {
	tb.t.Helper()
	tb.wait(fmt.Sprintf("[%q, %q].reduce((n, what) => n + Number(document.querySelector('.verdict').innerText.match(new RegExp('([0-9]+) ' + what))?.[1] || 0), 0) === %d", early, late, copies))
}

// TestWhatACopyGot: a copy that was sent while the call ran has joined it, and one that was
// sent afterwards has not.
func TestWhatACopyGot(t *testing.T) {
	tb := open(t, newWorld(t, false).page())
	got := eval[[]string](tb, `import(new URL('ui/js/lab.js', location.href)).then(({ kind }) => [
		{ decision: 'execute', status: 201 }, { decision: 'execute', status: 500 }, { decision: 'replay', at_ms: 5 }, { decision: 'replay', at_ms: 299 }, { decision: 'replay', at_ms: 300 },
		{ decision: 'in_flight', at_ms: 5 }, { decision: 'passed' }, { decision: 'refused' },
	].map((copy) => kind(copy, [{ at_ms: 0, took_ms: 300 }]).label))`)
	want := []string{"executed", "executed, and failed", "joined", "joined", "replayed", "in flight", "not guarded", "refused"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// next numbers what a tab does.
func (tb *tab) next() int {
	tb.n++
	return tb.n
}

// TestLab: copies of one request at once make one call at the upstream, also when they are
// sent again, and other copies are refused.
func TestLab(t *testing.T) {
	w := newWorld(t, false)
	tb := open(t, w.page())
	tb.visit("#/lab")
	tb.wait("document.querySelector('input[name=path]').value === '/charges'")
	tb.fill("input[name=key]", "slow-77")
	tb.fill("input[name=copies]", "25")
	tb.click("button", "Send 25 copies")
	tb.shows("25 sent, 1 ran")
	tb.shares(24, "joined", "replayed")
	tb.shows("the upstream was called once")
	tb.click("button", "Send 25 copies")
	tb.shows("25 sent, 0 ran")
	tb.shows("25 replayed")
	tb.fill("textarea[name=body]", `{"amount":1}`)
	tb.click("button", "Send 25 copies")
	tb.shows("25 conflict")
	if n := w.upstream.times("slow-77"); n != 1 {
		t.Errorf("75 copies called the upstream %d times", n)
	}
	// An operation over the execution API: the Lab does the work of the copy that may.
	eval[bool](tb, `((s) => { s.value = [...s.querySelectorAll('option')].find((o) => o.text === 'default').value; s.dispatchEvent(new Event('change', {bubbles: true})); return true; })(document.querySelector('select'))`)
	tb.wait("document.querySelector('input[name=work]')")
	tb.click("button", "New key")
	tb.fill("textarea[name=body]", `{"payload":{"a":1}}`)
	tb.click("button", "Send 25 copies")
	tb.shows("25 sent, 1 ran")
	tb.shares(24, "in flight", "replayed")
	tb.shows("0 in the ledger")
	tb.click("main a", "Its record")
	tb.shows("It was executed once. 24 more deliveries came.")
	tb.shows("semel.lab")
	// What no route guards runs each time, and the page says so.
	tb.visit("#/lab")
	tb.wait("document.querySelector('input[name=path]').value === '/charges'")
	tb.fill("input[name=path]", "//evil.example/charges")
	tb.click("button", "Send 10 copies")
	tb.shows("requests go to this service only")
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
	tb.fill("textarea[name=request]", "curl http://localhost/charges --json '{}'")
	tb.click("button", "Explain")
	tb.shows("It is refused, and nothing is executed.")
	tb.fill("textarea[name=request]", "rm -rf /")
	tb.click("button", "Explain")
	tb.shows("neither a curl command")
	if n := w.upstream.times("order-7"); n != 0 {
		t.Errorf("the upstream was called %d times", n)
	}
}
