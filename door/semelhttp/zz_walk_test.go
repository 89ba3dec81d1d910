package semelhttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store/memstore"
)

func TestZZWalk(t *testing.T) {
	e, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := semelhttp.New(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "pay"}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(201)
		w.Write([]byte(`{"id":1}`))
	}))
	for range 2 {
		r := httptest.NewRequest("POST", "/x", strings.NewReader(`{"a":1}`))
		r.Header.Set("Idempotency-Key", "4a8e9b52-0b8b-4d7c-9a43-9a1dba5ff001")
		r.Header.Set("Authorization", "Bearer abc")
		r.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		t.Log(rec.Code, rec.Header(), rec.Body)
	}
}
