package forrst_test

import (
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// Each try of a call has an id of its own, by which its sender asks about it.
func TestEachTryIsToldOf(t *testing.T) {
	clause.Proves(t, "FOR-ID.2")
	var runs atomic.Int64
	w := serving(t, semel.Operation{}, charge(&runs))
	w.post(call("req_1", `{"amount":1}`, `{"key":"order_1"}`))
	w.post(call("req_2", `{"amount":1}`, `{"key":"order_1"}`))
	w.post(call("req_3", `{"amount":2}`, `{"key":"order_1"}`))
	w.post(call("req_4", `[]`, `{"key":"order_1"}`))
	if len(w.answered) != 4 {
		t.Fatalf("told of %+v", w.answered)
	}
	for i, want := range []struct {
		request, original, status, shown string
		decision                         semel.Decision
		code                             semel.Code
	}{
		{"req_1", "", "processed", "", semel.Execute, ""},
		{"req_2", "req_1", "cached", "", semel.Replay, ""},
		{"req_3", "req_1", "conflict", "IDEMPOTENCY_CONFLICT", semel.Conflict, semel.CodeConflict},
	} {
		got, attrs := w.answered[i], map[string]string{}
		for _, a := range got.Attrs {
			attrs[a.Key] = a.Value.String()
		}
		if got.Request != want.request || attrs["original_request"] != want.original || attrs["forrst_status"] != want.status || attrs["forrst_code"] != want.shown ||
			attrs["function"] != "payments.charge" || attrs["version"] != "1.0.0" {
			t.Errorf("the log says %v, want %+v", attrs, want)
		}
		if got.Door != forrst.Name || got.Decision != want.decision || got.Code != want.code || got.ID.Key != "order_1" || got.Took <= 0 {
			t.Errorf("told of %+v, want %+v", got, want)
		}
	}
	if malformed := w.answered[3]; malformed.Code == "" || malformed.Decision != "" || len(malformed.Attrs) != 0 {
		t.Errorf("told of %+v", malformed)
	}
	found, err := w.engine.Search(t.Context(), store.Query{Attributes: store.Attributes{store.AttributeRequestID: "req_1"}})
	if err != nil || len(found.Records) != 1 || found.Records[0].ID != w.answered[1].ID {
		t.Errorf("by the id of its first request: %+v, %v", found, err)
	}
}
