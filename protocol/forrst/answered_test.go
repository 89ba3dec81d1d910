package forrst_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/protocol/forrst"
	"github.com/semelhq/semel/store"
)

// Each try of a call has an id of its own, by which its sender asks about it.
func TestEachTryIsToldOf(t *testing.T) {
	var runs atomic.Int64
	var told []forrst.Answered
	w := newWorld(t, forrst.Options{
		PlainHash: true, Functions: []forrst.Function{charging(semel.Operation{}, charge(&runs))},
		OnAnswer: func(_ context.Context, a forrst.Answered) { told = append(told, a) },
	})
	w.post(call("req_1", `{"amount":1}`, `{"key":"order_1"}`))
	w.post(call("req_2", `{"amount":1}`, `{"key":"order_1"}`))
	w.post(call("req_3", `{"amount":2}`, `{"key":"order_1"}`))
	w.post(call("req_4", `[]`, `{"key":"order_1"}`))
	if len(told) != 3 {
		t.Fatalf("told of %+v", told)
	}
	for i, want := range []forrst.Answered{
		{ID: "req_1", Status: "processed"},
		{ID: "req_2", OriginalID: "req_1", Status: "cached"},
		{ID: "req_3", OriginalID: "req_1", Status: "conflict", Code: "IDEMPOTENCY_CONFLICT"},
	} {
		got := told[i]
		if got.ID != want.ID || got.OriginalID != want.OriginalID || got.Status != want.Status || got.Code != want.Code ||
			got.Function != "payments.charge" || got.Version != "1.0.0" || got.Call.Key != "order_1" {
			t.Errorf("told of %+v, want %+v", got, want)
		}
	}
	found, err := w.engine.Search(t.Context(), store.Query{Attributes: store.Attributes{store.AttributeRequestID: "req_1"}})
	if err != nil || len(found.Records) != 1 || found.Records[0].ID != told[1].Call {
		t.Errorf("by the id of its first request: %+v, %v", found, err)
	}
}
