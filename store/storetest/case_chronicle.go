package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// chronicler is a witness whose entries tell which version of a record follows
// which, so that the log shows what is missing in it.
type chronicler struct{}

func (chronicler) Changed(_ *semel.Operation, prev, next *semel.Record, _ semel.Change) []semel.Entry {
	var before semel.Revision
	if prev != nil {
		before = prev.Revision
	}
	return []semel.Entry{{Leaf: fmt.Appendf(nil, "%s %s", before, next.Revision), Opening: []byte(next.ID.Key), Subject: subject(next.ID)}}
}

func (chronicler) Decided(context.Context, *semel.Operation, *semel.Call, *semel.Answer) error {
	return nil
}

// opWitnessed is recorded by the chronicler. Its leases outlast a test: renewals are
// no entries.
var opWitnessed = semel.Operation{Name: "witnessed", Evidence: semel.EvidenceChanges, OnFailure: semel.RetryFailure, Lease: time.Hour}

// witnessed makes an engine whose store fails as the control has it, with a
// chronicler.
func witnessed(t *testing.T, s semel.Store) (*semel.Engine, *faultstore.Control) {
	t.Helper()
	wrapped, control := faultstore.New(s, nil)
	t.Cleanup(control.Settle)
	return configured(t, wrapped, &semel.Options{Operations: []semel.Operation{opWitnessed}, Witness: chronicler{}}), control
}

// chronicle holds the log against the records: every version of a record has its
// entry, once and in its place, and no entry is about a version that never was. It
// returns how many entries there are.
func chronicle(t *testing.T, s semel.Store) int {
	t.Helper()
	type line struct {
		key, last string
	}
	lines := map[semel.Subject]line{}
	list := read(t, s, 0)
	for i, en := range list {
		before, after, ok := strings.Cut(string(en.Leaf), " ")
		l, known := lines[en.Subject]
		if !known {
			l.last = semel.Revision{}.String()
		}
		if !ok || before != l.last {
			t.Fatalf("entry %d tells of the version after %s, and the last one of %s was %s", i, before, en.Opening, l.last)
		}
		lines[en.Subject] = line{string(en.Opening), after}
	}
	for _, l := range lines {
		c := call(opWitnessed, l.key)
		rec, err := s.Get(t.Context(), semel.ID{Tenant: c.Tenant, Principal: c.Principal, Operation: c.Operation, Key: c.Key})
		if err != nil || rec.Revision.String() != l.last {
			t.Fatalf("the last entry of %s is about version %s, and %v is stored (error %v)", l.key, l.last, rec.Revision, err)
		}
	}
	return len(list)
}

// chronicleCases prove that faults leave no record without entries, and no entries
// without a record.
var chronicleCases = []testCase{
	{
		name:  "whatever fails, each version of a record has its entries, once, and no entries have none",
		why:   ruleEvidence + " " + ruleRetry,
		needs: canEvidence,
		run: func(t *testing.T, env Env) {
			e, control := witnessed(t, env.Store)
			keys := 0
			for _, form := range failing {
				for n := 1; n <= 4; n++ {
					keys++
					c := call(opWitnessed, fmt.Sprintf("%s %d", form, n))
					control.Next(faultstore.Apply, form, n)
					ans := begin(t, e, c, semel.Execute)
					control.Next(faultstore.Apply, form, n)
					if err := ans.Attempt.Fail(t.Context(), semel.Failure{Code: "once"}, semel.Result{}); err != nil {
						t.Fatalf("Fail: %v", err)
					}
					control.Next(faultstore.Apply, form, n)
					ans = begin(t, e, c, semel.Execute)
					control.Next(faultstore.Apply, form, n)
					complete(t, ans.Attempt, "done")
					replays(t, e, c, "done")
					control.Settle()
					if n := chronicle(t, env.Store); n != 4*keys {
						t.Fatalf("form %q: there are %d entries of %d calls with four changes each", form, n, keys)
					}
				}
			}
			fired(t, control)
		},
	},
	{
		name:  "a claim that nobody hears of has its entries or is not there",
		why:   ruleEvidence,
		needs: canEvidence,
		run: func(t *testing.T, env Env) {
			e, control := witnessed(t, env.Store)
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
				id := semel.ID{Tenant: c.Tenant, Principal: c.Principal, Operation: c.Operation, Key: c.Key}
				_, err := env.Store.Get(t.Context(), id)
				if err != nil && !errors.Is(err, semel.ErrNotFound) {
					t.Fatalf("Get: %v", err)
				}
				// The engine may have ended the attempt that it could not begin.
				chronicle(t, env.Store)
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
		},
	},
}

// evidenceFallback proves that an operation which demands evidence never runs
// without it.
var evidenceFallback = testCase{
	name: canEvidence.fallback,
	why:  "EvidenceStore: without it an operation that demands evidence is refused.",
	run: func(t *testing.T, env Env) {
		_, err := semel.New(bare{env.Store}, &semel.Options{Operations: []semel.Operation{opWitnessed}, Witness: chronicler{}})
		if !errors.Is(err, &semel.Error{Code: semel.CodeInvalidOperation}) {
			t.Fatalf("New on a store without an evidence log gives %v", err)
		}
	},
}
