package evidence_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
)

// A call that is remembered beyond its window has an entry when its outcome goes, and neither that
// nor the deliveries before and after it contradict anything.
func TestARememberedCallIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, semel.Operation{Name: "op", Window: time.Hour, Remember: 24 * time.Hour, Evidence: semel.EvidenceDurable})
		c := call("acme", "k", "p")
		r.do(t, c, "paid")
		r.do(t, c, "again")
		pass(time.Hour)
		r.do(t, c, "again") // the outcome is still stored
		if n, err := r.Sweep(t.Context()); err != nil || n.Forgotten != 1 {
			t.Fatalf("the sweep did %+v, %v", n, err)
		}
		r.do(t, c, "again")
		var types []evidence.Type
		for _, e := range r.entries(t) {
			types = append(types, e.Type)
			if gone := e.Payload.OutcomeRef == ""; gone != (len(types) == 1 || len(types) > 3) {
				t.Errorf("entry %d, %s, has the outcome %q", len(types), e.Type, e.Payload.OutcomeRef)
			}
		}
		want := []evidence.Type{
			evidence.TypeObservation, evidence.TypeExecuted, evidence.TypeObservation,
			evidence.TypeObservation, evidence.TypeForgotten, evidence.TypeObservation,
		}
		if len(types) != len(want) || types[4] != want[4] {
			t.Errorf("the log tells of %v", types)
		}
		found, err := r.log.Audit(t.Context(), nil)
		if err != nil || found.Found != 0 || found.Compared != 1 {
			t.Errorf("the audit found %+v, %v", found, err)
		}
		r.put(t, "k", func(rec *semel.Record) { rec.Result.Data = []byte("something") })
		if found, err := r.log.Audit(t.Context(), nil); err != nil || found.Found != 1 {
			t.Errorf("after an outcome was put into it, the audit found %+v, %v", found, err)
		}
		if report := r.verified(t); report.Finding != nil {
			t.Errorf("the log was blamed: %s", report.Finding)
		}
	})
}
