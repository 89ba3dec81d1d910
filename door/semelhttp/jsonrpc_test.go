package semelhttp_test

import (
	"strings"
	"testing"

	"github.com/semelhq/semel/door/semelhttp"
)

// A client of JSON-RPC waits for the answer to its own id. Whatever a route compares, a second
// request under another id gets a refusal, never the answer to the first one's id.
func TestNoAnswerUnderAnotherID(t *testing.T) {
	const first, second = `{"jsonrpc":"2.0","id":1,"method":"pay","params":{"order":7}}`, `{"jsonrpc":"2.0","id":2,"method":"pay","params":{"order":7}}`
	for name, c := range map[string]struct {
		rt         semelhttp.Route
		one, other int
		runs       int
	}{
		"everything is compared":  {semelhttp.Route{}, 200, 422, 1},
		"all but the time":        {semelhttp.Route{FingerprintIgnore: []string{"/params/at"}}, 200, 422, 1},
		"all but the id":          {semelhttp.Route{FingerprintIgnore: []string{"/id"}}, 400, 400, 0},
		"the parameters alone":    {semelhttp.Route{FingerprintOnly: []string{"/params"}}, 400, 400, 0},
		"a key in the parameters": {semelhttp.Route{KeyFrom: []string{"json:/params/order"}}, 200, 422, 1},
	} {
		s := newSelecting(t, c.rt)
		for n, sent := range []struct {
			body string
			want int
		}{{first, c.one}, {first, c.one}, {second, c.other}} {
			status, got := s.send("", inJSON, sent.body, "Idempotency-Key: k")
			if status != sent.want || status == 400 && !strings.Contains(got, "mcp or a2a") {
				t.Errorf("%s, request %d: %d %s", name, n, status, got)
			}
		}
		if s.runs != c.runs {
			t.Errorf("%s: it ran %d times", name, s.runs)
		}
	}
}
