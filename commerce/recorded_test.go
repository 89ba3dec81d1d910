package commerce

import (
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// TestRecordedForms reads what the first version left with others: ids of mandates, references of
// payments, and the results of charges. Never change these texts.
func TestRecordedForms(t *testing.T) {
	const id = "fx6hl1xw8g.9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08.s%3A1"
	m, origin, ok := parseID(id)
	if !ok || m.Session != "s:1" || m.Hash != "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" || time.UnixMicro(origin).UTC().Format(time.RFC3339) != "2021-03-29T07:54:00Z" {
		t.Errorf("%+v %v %t", m, time.UnixMicro(origin).UTC(), ok)
	}
	rec := &semel.Record{Effects: []store.EffectRecord{{Name: charge, State: store.EffectConfirmed, Result: store.Result{Data: []byte(`{"transaction_id":"pi_1","answer":"eA=="}`)}}}}
	if c, ok := charged(rec); !ok || c.TransactionID != "pi_1" || string(c.Answer) != "x" {
		t.Errorf("%+v %t", c, ok)
	}
	p := &Payments{opts: PaymentOptions{Operation: semel.Operation{Name: PaymentOperation}}}
	call, ok := p.callOf("payment:order%2F1:2999:USD:1705420800")
	if want := "order=order/1"; !ok || call.Scope != want || call.Attributes[AttributeOrder] != "order/1" {
		t.Errorf("%+v %t", call, ok)
	}
}
