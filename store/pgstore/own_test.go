package pgstore

import (
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// A transaction whose commit was not answered has committed if what it wrote is stored, or
// something that followed it.
func TestWhatATransactionWroteIsFoundBehindWhatFollowed(t *testing.T) {
	wrote := numbered("k", 1)
	wrote.State, wrote.Fence, wrote.StartedAt, wrote.Holder = semel.Completed, 7, 100, "a"
	changed := func(change func(*semel.Record)) *semel.Record {
		rec := wrote
		rec.Revision = numbered("k", 2).Revision
		change(&rec)
		return &rec
	}
	for name, c := range map[string]struct {
		stored *semel.Record
		left   bool
	}{
		"it is stored":             {&wrote, true},
		"a message of it was sent": {changed(func(rec *semel.Record) { rec.Outbox = []semel.Message{{ID: "m", State: store.MessageDelivered}} }), true},
		"a further attempt followed": {changed(func(rec *semel.Record) {
			rec.Fence, rec.StartedAt, rec.Holder = 8, 200, "b"
			rec.Earlier = []store.AttemptRecord{{Fence: 7, StartedAt: 100}}
		}), true},
		"another attempt stands there":   {changed(func(rec *semel.Record) { rec.Fence, rec.StartedAt = 8, 200 }), false},
		"another has the same fence":     {changed(func(rec *semel.Record) { rec.Holder = "b" }), false},
		"one of the same fence was lost": {changed(func(rec *semel.Record) { rec.StartedAt = 101 }), false},
	} {
		if leftIn(&wrote, c.stored) != c.left {
			t.Errorf("%s: want %v", name, c.left)
		}
	}
}
