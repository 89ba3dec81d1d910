package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/door/mcp"
)

// cancelling is a world with a server whose calls end when they may, or when they are cancelled.
func cancelling(t *testing.T, tool mcp.Tool) (w *world, release chan struct{}, cancelled chan struct{}) {
	w, release, cancelled = seen(t, mcp.GatewayOptions{Tools: map[string]mcp.Tool{"pay": tool}}), make(chan struct{}), make(chan struct{}, 10)
	w.answer = func(rw http.ResponseWriter, r *http.Request, id string, _ object) {
		select {
		case <-release:
			fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}`, id)
		case <-r.Context().Done():
			cancelled <- struct{}{}
		}
	}
	return w, release, cancelled
}

// TestCancelCall: where the policy says so, a call ends with its client, and is held because
// nobody knows how far it was.
func TestCancelCall(t *testing.T) {
	w, _, cancelled := cancelling(t, mcp.Tool{OnDisconnect: mcp.CancelCall})
	ctx, leave := context.WithCancel(t.Context())
	var gone sync.WaitGroup
	gone.Go(func() {
		_, raw := modern.body("tools/call", `"name":"pay","arguments":{}`, `"idempotency-key":"k-1"`)
		if resp, err := newClient(t).Do(w.request(modern, raw, "Mcp-Name", "pay").WithContext(ctx)); err == nil {
			resp.Body.Close()
		}
	})
	<-w.began
	leave()
	gone.Wait()
	<-cancelled
	if got := w.keyed(modern, "pay", "k-1", `{}`); got.code != "held" || w.runs.Load() != 1 {
		t.Errorf("%d runs: %s", w.runs.Load(), got.text)
	}
}

// TestCancelledByNotification: a client of an earlier version cancels by the id of its request. A
// guarded call goes on, unless the policy says otherwise; what isn't one passes.
func TestCancelledByNotification(t *testing.T) {
	for _, rule := range []mcp.Disconnect{"", mcp.CancelCall} {
		t.Run(string(rule), func(t *testing.T) {
			w, release, cancelled := cancelling(t, mcp.Tool{OnDisconnect: rule})
			id, raw := middle.body("tools/call", `"name":"pay","arguments":{}`, "")
			cancel := func(id, session string) *answer {
				return w.post(middle, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`, "Mcp-Session-Id", session)
			}
			var first sync.WaitGroup
			first.Go(func() { w.post(middle, raw, "Mcp-Session-Id", "s-1") })
			<-w.began
			for _, other := range [][2]string{{"7", "s-1"}, {id, "s-2"}, {`"` + id + `"`, "s-1"}, {"null", "s-1"}} {
				if cancel(other[0], other[1]); len(w.said) == 0 || !strings.Contains(w.said[len(w.said)-1], `"requestId":`+other[0]+"}") {
					t.Errorf("%v didn't pass: %q", other, w.said)
				}
			}
			passed := len(w.said)
			if got := cancel(id, "s-1"); got.status != http.StatusAccepted || got.text != "" || len(w.said) != passed {
				t.Errorf("%d %q, and %d passed", got.status, got.text, len(w.said)-passed)
			}
			if rule == mcp.CancelCall {
				<-cancelled
				first.Wait()
			}
			var second sync.WaitGroup
			second.Go(func() {
				_, got := w.call(middle, "pay", `{}`, "", "")
				if want := map[mcp.Disconnect]string{"": "", mcp.CancelCall: "held"}[rule]; got.code != want || want == "" && (got.said() != "ok" || !got.echo()) {
					t.Errorf("%s", got.text)
				}
			})
			close(release)
			second.Wait()
			first.Wait()
			if w.runs.Load() != 1 {
				t.Errorf("%d runs", w.runs.Load())
			}
		})
	}
	if _, err := mcp.NewGateway(open(t, mcp.GatewayOptions{}).Guard, mcp.GatewayOptions{Operation: operation, Upstream: urlOf(t, "http://127.0.0.1:1"), Tools: map[string]mcp.Tool{"pay": {OnDisconnect: "stop"}}}); err == nil {
		t.Error("another rule")
	}
}
