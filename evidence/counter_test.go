package evidence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// tally adds up what entries tell of a decision: how many entries have no count, how many have
// one, and how many deliveries those counts are.
func (r *rig) tally(t testing.TB, decision string) (single, counted int, deliveries uint64) {
	t.Helper()
	for _, e := range r.entries(t) {
		switch p := &e.Payload; {
		case p.Decision != decision:
		case p.Count == 0:
			single++
		default:
			counted++
			deliveries += p.Count
		}
	}
	return single, counted, deliveries
}

// stranger is a delivery of somebody whom nobody has verified.
func stranger(key string, n int) semel.Call {
	c := call("acme", key, "p")
	c.BoundTo = fmt.Sprint("credential ", n)
	return c
}

func TestManyAnswersAreOneEntry(t *testing.T) {
	for _, test := range []struct {
		name     string
		level    semel.EvidenceLevel
		decision string
		send     func(r *rig, n int) semel.Call
		single   int
	}{
		{"replays", semel.EvidenceDecisions, evidence.DecisionReplayed, func(*rig, int) semel.Call { return call("acme", "k", "p") }, 30},
		{"conflicts", semel.EvidenceDecisions, evidence.DecisionConflict, func(_ *rig, n int) semel.Call { return call("acme", "k", fmt.Sprint(n)) }, 30},
		{"strangers", semel.EvidenceDecisions, "other_caller", func(_ *rig, n int) semel.Call { return stranger("k", n) }, 0},
		{"strangers, durable", semel.EvidenceDurable, "other_caller", func(_ *rig, n int) semel.Call { return stranger("k", n) }, 0},
		{"replays, durable", semel.EvidenceDurable, evidence.DecisionReplayed, func(*rig, int) semel.Call { return call("acme", "k", "p") }, 1000},
		{"conflicts, durable", semel.EvidenceDurable, evidence.DecisionConflict, func(_ *rig, n int) semel.Call { return call("acme", "k", fmt.Sprint(n)) }, 1000},
	} {
		t.Run(test.name, func(t *testing.T) {
			clause.Proves(t, "IDS-XII.1")
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil, semel.Operation{Name: "op", Evidence: test.level})
				r.do(t, call("acme", "k", "p"), "paid")
				start := time.Now()
				for n := range 1000 {
					r.do(t, test.send(r, n), "")
					pass(10 * time.Millisecond)
				}
				pass(evidence.DefaultCountEvery)
				synctest.Wait()
				single, counted, deliveries := r.tally(t, test.decision)
				if want := 1000 - test.single; single != test.single || int(deliveries) != want || want > 0 && counted != 1 {
					t.Fatalf("%d entries of one delivery, and %d of %d", single, counted, deliveries)
				}
				for _, e := range r.entries(t) {
					if p := e.Payload; p.Count > 0 && (p.From.Before(start) || p.Until.Sub(p.From) < 9*time.Second || p.Until.Sub(p.From) > 10*time.Second || p.Record == "" || e.opening.IdempotencyKey != "k" || *p.Executed) {
						t.Errorf("%+v of %+v", p, e.opening)
					}
				}
				r.do(t, test.send(r, 1), "") // in the next minute it has an entry of its own again, or is counted
				checkForm(t, r)
				if report := r.verified(t); report.Finding != nil {
					t.Error(report.Finding)
				}
				if s, _, n := r.tally(t, test.decision); s+int(n) != 1001 {
					t.Errorf("%d deliveries are in the log at the end", s+int(n))
				}
			})
		})
	}
}

// What strangers write costs them their quota, and beyond it one entry tells of all.
func TestStrangersCannotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		r := newRig(t, nil)
		account := func(_ context.Context, rec *semel.Record) (string, string) {
			if rec.BoundTo != "" {
				return "strangers", "their network"
			}
			return rec.ID.Tenant, "owner"
		}
		e, err := semel.New(r.store, &semel.Options{
			Witness:    r.log,
			Operations: []semel.Operation{{Name: "op", Evidence: semel.EvidenceDecisions}},
			Quotas:     semel.Quotas{PrincipalBytes: 64 << 10, Account: account},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close(ctx)
		for i := range 40 {
			ans, err := r.Begin(ctx, call("acme", fmt.Sprint("k", i), "p"))
			if err := errors.Join(err, ans.Attempt.Complete(ctx, semel.Result{})); err != nil {
				t.Fatal(err)
			}
		}
		before := len(r.entries(t))
		sent := 0
		for round := range 20 {
			for i := range 40 {
				if ans, err := e.Begin(ctx, stranger(fmt.Sprint("k", i), round)); ans.Decision != semel.OtherCaller {
					t.Fatal(ans.Decision, err)
				}
				sent++
			}
			pass(2 * evidence.DefaultCountEvery)
		}
		synctest.Wait()
		_, counted, deliveries := r.tally(t, "other_caller")
		if int(deliveries) != sent || counted > 64+40 {
			t.Errorf("%d deliveries of %d are in %d entries", deliveries, sent, counted)
		}
		whole := 0
		for _, en := range r.entries(t)[before:] {
			if en.Payload.Record == "" {
				whole++
				if en.opening.Operation != "op" || en.opening.IdempotencyKey != "" || en.Payload.Operation == "" {
					t.Errorf("%+v", en)
				}
			}
		}
		if whole < 10 || whole > 20 {
			t.Errorf("%d entries tell of all that are over the quota", whole)
		}
		checkForm(t, r)
	})
}

// What is written about a caller's calls, and about their refusals, costs their quota.
func TestEvidenceCostsQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		r := newRig(t, nil)
		engine := func() *semel.Engine {
			e, err := semel.New(r.store, &semel.Options{
				Witness:    r.log,
				Operations: []semel.Operation{{Name: "op", Evidence: semel.EvidenceDecisions}},
				Quotas:     semel.Quotas{PrincipalBytes: 64 << 10},
			})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		e := engine()
		began := 0
		for i := range 1000 { // of calls that come to nothing
			ans, err := e.Begin(ctx, call("acme", fmt.Sprint("new", i), "p"))
			if err != nil {
				t.Fatal(err)
			}
			if ans.Decision == semel.Throttled {
				break
			}
			began++
			if err := ans.Attempt.Abort(ctx, store.Failure{}); err != nil {
				t.Fatal(err)
			}
		}
		if began < 10 || began > 64 {
			t.Errorf("%d calls that came to nothing have evidence", began)
		}
		for i := range 200 {
			r.do(t, call("acme", fmt.Sprint("k", i), "p"), "paid")
		}
		if err := e.Close(ctx); err != nil {
			t.Fatal(err)
		}
		e = engine() // which has forgotten what was used
		for i := range 200 {
			if ans, err := e.Begin(ctx, call("acme", fmt.Sprint("k", i), "another")); ans.Decision != semel.Conflict {
				t.Fatal(ans.Decision, err)
			}
		}
		pass(2 * evidence.DefaultCountEvery)
		synctest.Wait()
		single, counted, n := r.tally(t, evidence.DecisionConflict)
		if single < 10 || single > 100 || counted != 1 || single+int(n) != 200 {
			t.Errorf("%d conflicts have entries of their own, and %d entries tell of %d", single, counted, n)
		}
		if err := e.Close(ctx); err != nil {
			t.Fatal(err)
		}
	})
}

// An outcome that was changed while deliveries are counted isn't counted with the others.
func TestAChangedOutcomeIsFoundAmongCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, semel.Operation{Name: "op", Evidence: semel.EvidenceDecisions})
		for n := range 30 {
			if n == 20 {
				r.put(t, "k", func(rec *semel.Record) { rec.Result.Data = []byte("nothing") })
			}
			r.do(t, call("acme", "k", "p"), "paid")
		}
		if report := r.verified(t); report.Finding == nil || !strings.Contains(report.Finding.Message, "another outcome") {
			t.Errorf("%+v", report)
		}
	})
}

// An orderly stop writes what is counted, and says what it can't.
func TestCountsAtTheEnd(t *testing.T) {
	st := &gated{}
	inBubble(t, st, nil, func(t *testing.T, l *evidence.Log) {
		for range 100 {
			if err := decide(t.Context(), l, semel.EvidenceDecisions, "k"); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := count(t, st); n != 31 { // and one with the number of the others
			t.Errorf("%d entries", n)
		}
		for range 10 { // also of those that would be counted
			if err := decide(t.Context(), l, semel.EvidenceDecisions, "k"); err == nil {
				t.Error("a closed log takes deliveries")
			}
		}
	})
	st = &gated{shut: true}
	inBubble(t, st, &evidence.Options{MaxQueue: 30, MaxWait: time.Second, OnError: func(error) {}}, func(t *testing.T, l *evidence.Log) {
		for range 100 {
			if err := decide(t.Context(), l, semel.EvidenceDecisions, "k"); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := l.Close(ctx)
		if err == nil || !strings.Contains(err.Error(), "counts of 70 deliveries") || !strings.Contains(err.Error(), "30 entries") {
			t.Errorf("what is lost is not said: %v", err)
		}
	})
}

// While the store takes nothing, what is counted stays so, and is told later.
func TestCountsOutliveAnOutage(t *testing.T) {
	st := &gated{shut: true}
	var said atomic.Int64
	inBubble(t, st, &evidence.Options{MaxQueue: 4, MaxWait: time.Second, OnError: func(error) { said.Add(1) }}, func(t *testing.T, l *evidence.Log) {
		for i := range 4 { // which fills the queue
			if err := decide(t.Context(), l, semel.EvidenceDecisions, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		op := &semel.Operation{Name: "op", Evidence: semel.EvidenceDecisions}
		for range 2 {
			for n := range 50 {
				c := stranger("k", n)
				if err := l.Decided(t.Context(), op, &c, &semel.Answer{Decision: semel.OtherCaller, Record: &semel.Record{ID: c.ID(semel.SharePrincipal)}}, nil); err != nil {
					t.Fatal(err)
				}
			}
			pass(evidence.DefaultCountEvery + 500*time.Millisecond) // into the time in which those before can't be written
		}
		close(st.gate)
		pass(2 * evidence.DefaultCountEvery)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		r := &rig{store: st.Store}
		if single, counted, n := r.tally(t, "other_caller"); single != 0 || counted != 1 || n != 100 || said.Load() == 0 {
			t.Errorf("%d, and %d of %d, after %d errors", single, counted, n, said.Load())
		}
	})
}

// However many calls deliveries name, the memory for their counts is bounded, and the number
// is exact.
func TestCountsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{store: memstore.New(), keys: newKeys(t)}
		r.log = r.node(t, nil)
		op := &semel.Operation{Name: "op", Evidence: semel.EvidenceDecisions}
		for n := range 10_000 {
			c := stranger(fmt.Sprint("k", n), n)
			if err := r.log.Decided(t.Context(), op, &c, &semel.Answer{Decision: semel.OtherCaller, Record: &semel.Record{ID: c.ID(semel.SharePrincipal)}}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.log.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if single, counted, n := r.tally(t, "other_caller"); single != 0 || counted > 4096 || n != 10_000 {
			t.Errorf("%d, and %d of %d", single, counted, n)
		}
	})
}

// What is still counted about an identity that is erased is written for its operation, and names
// nobody.
func TestCountsOfWhatWasErasedNameNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, semel.Operation{Name: "op", Evidence: semel.EvidenceDecisions})
		for _, key := range []string{"anna@example.com", "other"} {
			r.do(t, call("acme", key, "p"), "paid")
			for range 100 {
				r.do(t, call("acme", key, "p"), "")
			}
		}
		now := time.Now()
		r.log.Erased(semel.Erased{Includes: func(id semel.ID, at time.Time) bool { return id.Key == "anna@example.com" && !at.After(now) }})
		pass(2 * evidence.DefaultCountEvery) // and until it is numbered
		synctest.Wait()
		named := map[string]uint64{}
		for _, e := range r.entries(t) {
			named[e.opening.IdempotencyKey] += e.Payload.Count
		}
		if named["anna@example.com"] != 0 || named["other"] != 70 || named[""] != 70 {
			t.Errorf("deliveries that were counted, by key: %v", named)
		}
	})
}
