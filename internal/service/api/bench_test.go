package api

import (
	"encoding/json"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"

	"github.com/semelhq/semel/internal/wire"
)

// BenchmarkBeginComplete is one pair of requests against the handler, without a
// network.
func BenchmarkBeginComplete(b *testing.B) {
	st := memstore.New()
	obs := NewObserver(st)
	engine, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "charge"}}, Events: obs.Events()})
	if err != nil {
		b.Fatal(err)
	}
	a, err := New(Options{Engine: engine, Observer: obs, Identify: identify})
	if err != nil {
		b.Fatal(err)
	}
	send := func(path, body string, want int) []byte {
		r := httptest.NewRequest("POST", path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer shop")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		a.Data().ServeHTTP(w, r)
		if w.Code != want {
			b.Fatalf("status %d: %s", w.Code, w.Body)
		}
		return w.Body.Bytes()
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		var x wire.Begun
		if err := json.Unmarshal(send(beginCharge, `{"key":"`+strconv.Itoa(i)+`","payload":{"amount":100,"currency":"EUR"}}`, 201), &x); err != nil {
			b.Fatal(err)
		}
		send("/v1/executions/"+x.Execution+"/complete", `{"result":{"id":"ch_1"}}`, 200)
	}
}
