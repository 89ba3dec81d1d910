package semelproxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/doortest"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
)

func TestDoor(t *testing.T) {
	doortest.Run(t, doortest.Door{Open: func(t *testing.T, e *semel.Engine, work func() error) doortest.Deliver {
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := work(); err != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = io.WriteString(w, `{"charge": "ch_1",  "n": 1.0}`)
		}))
		t.Cleanup(upstream.Close)
		u, err := url.Parse(upstream.URL)
		if err != nil {
			t.Fatal(err)
		}
		guard, err := semelhttp.New(e, &semelhttp.Options{TempDir: t.TempDir(), Identity: func(*http.Request) (tenant, principal string, err error) {
			return "acme", "shop", nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		proxy, err := semelproxy.New(guard, semelproxy.Options{Upstream: u, Route: semelhttp.Route{Operation: semel.Operation{Name: "charge"}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		return func(key string) doortest.Reply {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader(`{"amount":1}`))
			r.Header.Set("Idempotency-Key", key)
			w := httptest.NewRecorder()
			proxy.ServeHTTP(w, r)
			return doortest.ReplyTo(t, w)
		}
	}})
}
