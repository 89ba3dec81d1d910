package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// versions is a witness. Its entries say which version of a record follows which, so that gaps
// in the log show.
type versions struct{}

func (versions) Changed(_ *semel.Operation, prev, next *semel.Record, _ store.Change) []store.Entry {
	var before store.Revision
	if prev != nil {
		before = prev.Revision
	}
	return []store.Entry{{Leaf: fmt.Appendf(nil, "%s %s", before, next.Revision), Opening: []byte(next.ID.Key), Subject: subject(next.ID)}}
}

func (versions) Decided(context.Context, *semel.Operation, *semel.Call, *semel.Answer, semel.Payer) error {
	return nil
}

func (versions) EraseRecord(context.Context, semel.ID) (int, error) { return 0, errors.ErrUnsupported }

// Expects is [semel.Witness.Expects].
func (versions) Expects(context.Context, semel.ID, store.Instant, store.Instant, bool) (bool, error) {
	return false, nil
}

// Subject is [semel.Witness.Subject].
func (versions) Subject(semel.ID) store.Subject { return store.Subject{} }

// opWitnessed has evidence. Its lease outlasts a test, because renewals have no entries.
var opWitnessed = semel.Operation{Name: "witnessed", Evidence: semel.EvidenceChanges, OnFailure: semel.RetryFailure, Lease: time.Hour}

// witnessed makes an engine with evidence over a store that fails as the control says.
func witnessed(t *testing.T, s semel.Store, patience time.Duration) (*semel.Engine, *faultstore.Control) {
	t.Helper()
	wrapped, control := faultstore.New(s, nil)
	t.Cleanup(control.Settle)
	return configured(t, wrapped, &semel.Options{Operations: []semel.Operation{opWitnessed}, Witness: versions{}, StoreTimeout: patience}), control
}

// checkVersions compares the log with the records: every version of a record has one entry, in
// its place, and every entry is about a stored version. It returns the number of entries.
func checkVersions(t *testing.T, s semel.Store) int {
	t.Helper()
	type line struct {
		key, last string
	}
	lines := map[store.Subject]line{}
	list := read(t, s, 0)
	for i, en := range list {
		before, after, ok := strings.Cut(string(en.Leaf), " ")
		l, known := lines[en.Subject]
		if !known {
			l.last = store.Revision{}.String()
		}
		if !ok || before != l.last {
			t.Fatalf("entry %d tells of the version after %s, and the last one of %s was %s", i, before, en.Opening, l.last)
		}
		lines[en.Subject] = line{string(en.Opening), after}
	}
	for _, l := range lines {
		c := call(opWitnessed, l.key)
		rec, err := s.Get(t.Context(), c.ID(opWitnessed.Share))
		if err != nil || rec.Revision.String() != l.last {
			if len(read(t, s, 0)) > len(list) {
				return checkVersions(t, s) // background work of the engine came in between
			}
			t.Fatalf("the last entry of %s is about version %s, and %v is stored (error %v)", l.key, l.last, rec.Revision, err)
		}
	}
	return len(list)
}

// evidenceFaultCases prove that faults leave no record without entries and no entries without a
// record.
var evidenceFaultCases = []testCase{
	{"whatever fails, each version of a record has its entries, once, and no entries have none", ruleEvidence + " " + ruleRetry, func(t *testing.T, env Env) {
		clause.Proves(t, "G-EVIDENCE")
		e, control := witnessed(t, env.Store, 0)
		keys := 0
		for _, form := range failing {
			for n := 1; n <= 4; n++ {
				keys++
				c := call(opWitnessed, fmt.Sprintf("%s %d", form, n))
				control.Next(faultstore.Apply, form, n)
				ans := begin(t, e, c, semel.Execute)
				control.Next(faultstore.Apply, form, n)
				if err := ans.Attempt.Fail(t.Context(), store.Failure{Code: "once"}, semel.Result{}); err != nil {
					t.Fatalf("Fail: %v", err)
				}
				control.Next(faultstore.Apply, form, n)
				ans = begin(t, e, c, semel.Execute)
				control.Next(faultstore.Apply, form, n)
				complete(t, ans.Attempt, "done")
				replays(t, e, c, "done")
				control.Settle()
				if n := checkVersions(t, env.Store); n != 4*keys {
					t.Fatalf("form %q: there are %d entries of %d calls with four changes each", form, n, keys)
				}
			}
		}
		fired(t, control)
	}},
	{"a claim that nobody hears of has its entries or is not there", ruleEvidence, func(t *testing.T, env Env) {
		// Long enough for a write on a busy machine: a late claim would prove nothing.
		e, control := witnessed(t, env.Store, 2*time.Second)
		there := 0
		for _, form := range failing {
			c := call(opWitnessed, string(form))
			control.Next(faultstore.Apply, form, 1000)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if ans, err := e.Begin(ctx, c); err == nil {
				t.Fatalf("form %q: Begin gives %s while the store does not answer", form, ans.Decision)
			}
			cancel()
			control.Settle()
			id := c.ID(opWitnessed.Share)
			_, err := env.Store.Get(t.Context(), id)
			if err != nil && !errors.Is(err, semel.ErrNotFound) {
				t.Fatalf("Get: %v", err)
			}
			// The engine may have ended the attempt that it couldn't begin.
			checkVersions(t, env.Store)
			numbers, err2 := evidenceOf(env.Store).FindEvidence(t.Context(), subject(id), 0, 1)
			if err2 != nil || (err == nil) != (len(numbers) > 0) {
				t.Fatalf("form %q: Get gives %v, and the entries of the record are %v, %v", form, err, numbers, err2)
			}
			if err == nil {
				there++
			}
			control.Heal()
		}
		if there != 2 {
			t.Errorf("%d of the claims that failed are there, want those of two forms", there)
		}
		fired(t, control)
	}},
}
