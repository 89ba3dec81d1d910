package semelhttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/doortest"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store/memstore"
)

func TestDoor(t *testing.T) {
	doortest.Run(t, doortest.Door{Open: func(t *testing.T, e *semel.Engine, work func() error) doortest.Deliver {
		guard, err := semelhttp.New(e, &semelhttp.Options{TempDir: t.TempDir(), Identity: func(*http.Request) (tenant, principal string, err error) {
			return "acme", "shop", nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		h := guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "charge"}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := work(); err != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = io.WriteString(w, `{"charge": "ch_1",  "n": 1.0}`)
		}))
		return func(key string) doortest.Reply {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader(`{"amount":1}`))
			r.Header.Set("Idempotency-Key", key)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return doortest.ReplyTo(t, w)
		}
	}})
}

func TestCodes(t *testing.T) {
	e, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semelhttp.New(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	doortest.Codes(t, nil, func(t *testing.T, code semel.Code) doortest.Reply {
		w := httptest.NewRecorder()
		guard.Refuse(w, httptest.NewRequest("POST", "/", nil), semelhttp.IETF(), semelhttp.RefusalOf(code, ""))
		return doortest.ReplyTo(t, w)
	})
}
