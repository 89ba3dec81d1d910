package mcp_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/doortest"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/jsonscan"
)

func TestDoor(t *testing.T) {
	doortest.Run(t, doortest.Door{Open: func(t *testing.T, e *semel.Engine, work func() error) doortest.Deliver {
		s := newServer()
		s.answer = func(w http.ResponseWriter, _ *http.Request, id string, _ object) {
			if work() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[]}}`))
		}
		upstream, _ := url.Parse(listen(t, s))
		guard, err := semelhttp.New(e, &semelhttp.Options{Identity: func(*http.Request) (string, string, error) { return "", "tester", nil }})
		if err != nil {
			t.Fatal(err)
		}
		g, err := mcp.NewGateway(guard, mcp.GatewayOptions{Operation: operation, Upstream: upstream, Wait: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return func(key string) doortest.Reply {
			_, raw := middle.body("tools/call", `"name":"pay"`, `"idempotency-key":"`+key+`"`)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(raw))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Mcp-Protocol-Version", string(middle))
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			got := read(t, w.Result())
			if got.result == nil && got.code == "" {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			// The mark of a replay names the delivery.
			return doortest.Reply{Code: got.code, Action: got.action, Body: string(jsonscan.Without(jsonscan.Member(w.Body.Bytes(), "result"), "_meta"))}
		}
	}})
	doortest.Codes(t, nil, func(t *testing.T, code semel.Code) doortest.Reply {
		w, model := httptest.NewRecorder(), httptest.NewRecorder()
		mcp.Refuse(w, model, code)
		got, understood := read(t, w.Result()), read(t, model.Result())
		m, _ := door.Lookup(code)
		if understood.code != got.code || understood.action != got.action || w.Header().Get("Semel-Effect") != m.Effect || model.Header().Get("Semel-Effect") != m.Effect {
			t.Errorf("%s, and for a model %s", w.Body, model.Body)
		}
		return doortest.Reply{Code: got.code, Action: got.action}
	})
}
