package enginetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// scribe is a witness that writes plain words.
type scribe struct {
	mu      sync.Mutex
	decided []string
	erased  []string
	fail    error
}

// Changed makes one entry: the revisions before and after, what changed, and what
// the record is then.
func (s *scribe) Changed(_ *semel.Operation, prev, next *semel.Record, change store.Change) []store.Entry {
	d := sha256.Sum256([]byte(next.ID.Key))
	return []store.Entry{{
		Leaf:    fmt.Appendf(nil, "%s %s %s %s %s", prev.Revision, next.Revision, change, next.State, next.Disposition),
		Opening: []byte(next.ID.Key), Subject: store.Subject(d[:16]),
	}}
}

// Decided keeps the decision in memory.
func (s *scribe) Decided(_ context.Context, _ *semel.Operation, call *semel.Call, ans *semel.Answer, _ semel.Payer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decided = append(s.decided, call.Key+" "+string(ans.Decision))
	return s.fail
}

// Subject is a digest with a secret that everybody knows.
func (s *scribe) Subject(id semel.ID) store.Subject {
	d := sha256.Sum256([]byte("secret" + id.Encode()))
	return store.Subject(d[:16])
}

// Expects never misses a record.
func (s *scribe) Expects(context.Context, semel.ID, store.Instant, store.Instant, bool) (bool, error) {
	return false, nil
}

// EraseRecord keeps the key in memory.
func (s *scribe) EraseRecord(_ context.Context, id semel.ID) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erased = append(s.erased, id.Key)
	return 0, s.fail
}

// told is what the log says of a key, without revisions.
func told(t *testing.T, st store.EvidenceLog, key string) []string {
	t.Helper()
	d := sha256.Sum256([]byte(key))
	numbers, err := st.FindEvidence(t.Context(), store.Subject(d[:16]), 0, 1000)
	must(t, err)
	var lines []string
	for _, n := range numbers {
		entries, err := st.ReadEvidence(t.Context(), n, 1)
		must(t, err)
		lines = append(lines, strings.TrimSpace(strings.Join(strings.Fields(string(entries[0].Leaf))[2:], " ")))
	}
	return lines
}

// evident runs a test with an engine that keeps evidence.
func evident(t *testing.T, op semel.Operation, body func(t *testing.T, e *semel.Engine, st *memstore.Store, s *scribe)) {
	t.Helper()
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		s := &scribe{}
		op.Name = "op"
		e, err := semel.New(r.store, &semel.Options{Operations: []semel.Operation{op}, Witness: s})
		must(t, err)
		body(t, e, r.store, s)
		must(t, e.Close(context.Background()))
	})
}

func TestEveryChangeHasItsEntry(t *testing.T) {
	op := semel.Operation{Evidence: semel.EvidenceChanges, Lease: 3 * time.Second, OnAbandoned: semel.RetryAbandoned}
	evident(t, op, func(t *testing.T, e *semel.Engine, st *memstore.Store, s *scribe) {
		a := begin(t, e, call("k"))
		pass(10 * time.Second) // renewals are no evidence
		_, err := semel.Effect(t.Context(), a, "charge", func(context.Context, string) (int, error) { return 1, nil })
		must(t, err)
		must(t, a.Send(semel.Message{Name: "m", Destination: "d"}))
		must(t, a.Complete(t.Context(), data("x")))
		must(t, a.Complete(t.Context(), data("x")))
		m := a.Record().Outbox[0]
		for _, f := range []store.MessageFinding{
			{State: store.MessagePending, RetryAfter: time.Second, Failure: &store.Failure{Code: "503"}},
			{State: store.MessageParked}, {State: store.MessageParked}, {State: store.MessageDiscarded},
		} {
			_, err := e.Internal().SettleMessage(t.Context(), id("k"), m.ID, f)
			must(t, err)
		}
		decides(t, e, call("k"), semel.Replay)
		want := []string{
			"claimed processing", "effect processing", "effect processing", "ended completed completed",
			"message completed completed", "message completed completed", "message completed completed",
		}
		if got := told(t, st, "k"); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}

		b := begin(t, e, call("h"))
		must(t, b.Hold(t.Context(), "why"))
		_, err = e.Settle(t.Context(), id("h"), semel.Settlement{Outcome: semel.DispositionAborted}, "looked")
		must(t, err)
		c := begin(t, e, call("h"))
		must(t, c.Fail(t.Context(), store.Failure{}, semel.Result{}))
		want = []string{"claimed processing", "held processing", "settled failed aborted", "claimed processing", "ended failed failed"}
		if got := told(t, st, "h"); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		if len(s.decided) != 0 {
			t.Errorf("told of decisions: %q", s.decided)
		}
	})
}

// TestAQuestionWithoutAnAnswerIsNoEvidence: a reconciler may ask every second for days.
func TestAQuestionWithoutAnAnswerIsNoEvidence(t *testing.T) {
	asked := 0
	op := semel.Operation{Evidence: semel.EvidenceChanges, ReconcileEvery: time.Second, Reconcile: func(context.Context, semel.Record) (semel.Settlement, error) {
		if asked++; asked < 60 {
			return semel.Settlement{}, nil
		}
		return semel.Settlement{Outcome: semel.DispositionAborted}, nil
	}}
	evident(t, op, func(t *testing.T, e *semel.Engine, st *memstore.Store, _ *scribe) {
		must(t, begin(t, e, call("k")).Hold(t.Context(), "why"))
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- e.Run(ctx, time.Second) }()
		pass(5 * time.Minute)
		stop()
		<-ran
		want := []string{"claimed processing", "held processing", "settled failed aborted"}
		if got := told(t, st, "k"); asked != 60 || !slices.Equal(got, want) {
			t.Errorf("asked %d times, and got %q", asked, got)
		}
	})
}

func TestEvidenceOfDecisionsIsKeptByLevel(t *testing.T) {
	for level, n := range map[semel.EvidenceLevel]int{"": 0, semel.EvidenceNone: 0, semel.EvidenceChanges: 0, semel.EvidenceDecisions: 4, semel.EvidenceDurable: 4} {
		t.Run("level "+string(level), func(t *testing.T) {
			evident(t, semel.Operation{Evidence: level}, func(t *testing.T, e *semel.Engine, st *memstore.Store, s *scribe) {
				a := begin(t, e, call("k"))
				decides(t, e, call("k"), semel.InFlight)
				other := call("k")
				other.Fingerprint = payload("y")
				decides(t, e, other, semel.Conflict)
				must(t, a.Complete(t.Context(), data("x")))
				decides(t, e, call("k"), semel.Replay)
				must(t, begin(t, e, call("h")).Hold(t.Context(), ""))
				decides(t, e, call("h"), semel.Held)
				want := []string{"k in_flight", "k conflict", "k replay", "h held"}
				if !slices.Equal(s.decided, want[:n]) {
					t.Errorf("told of %q", s.decided)
				}
				if got := len(told(t, st, "k")); (got == 2) != (level != "" && level != semel.EvidenceNone) {
					t.Errorf("%d entries of changes", got)
				}
			})
		})
	}
}

func TestAnAnswerWithoutItsEvidenceIsKeptBack(t *testing.T) {
	evident(t, semel.Operation{Evidence: semel.EvidenceDurable}, func(t *testing.T, e *semel.Engine, _ *memstore.Store, s *scribe) {
		must(t, begin(t, e, call("k")).Complete(t.Context(), data("secret")))
		s.fail = errors.New("the log is full")
		ans, err := e.Begin(t.Context(), call("k"))
		if wantCode(t, err, semel.CodeStoreUnavailable); ans.Record != nil || ans.Decision != "" || !errors.Is(err, s.fail) {
			t.Errorf("got %+v, %v", ans, err)
		}
	})
}

func TestReadOnlyCallsRunUnrecordedAndAreLogged(t *testing.T) {
	clause.Proves(t, "IDS-VI.3")
	evident(t, semel.Operation{Class: semel.ReadOnly, Evidence: semel.EvidenceDecisions}, func(t *testing.T, e *semel.Engine, st *memstore.Store, s *scribe) {
		runs := 0
		for range 2 {
			_, err := e.Do(t.Context(), call("k"), func(_ context.Context, x semel.Execution) (semel.Result, error) {
				runs++
				wantCode(t, semel.Send(x, semel.Message{Name: "m", Destination: "d"}), semel.CodeUnsupported)
				return data("x"), nil
			})
			must(t, err)
		}
		_, a, err := e.BeginTx(t.Context(), nil, call("tx"))
		must(t, err)
		wantCode(t, a.Send(semel.Message{Name: "m", Destination: "d"}), semel.CodeUnsupported)
		must(t, a.Complete(t.Context(), data("x")))
		if want := []string{"k execute", "k execute", "tx execute"}; runs != 2 || !slices.Equal(s.decided, want) {
			t.Errorf("%d runs, told of %q", runs, s.decided)
		}
		if got := told(t, st, "k"); len(got) != 0 {
			t.Errorf("the log has changes of a call that is not recorded: %q", got)
		}
		s.fail = errors.New("the log is full")
		_, err = e.Begin(t.Context(), call("k"))
		wantCode(t, err, semel.CodeStoreUnavailable)
		_, _, err = e.BeginTx(t.Context(), nil, call("tx"))
		wantCode(t, err, semel.CodeStoreUnavailable)
	})
}

// A transaction that claims and ends in one write has the entries of both, if it
// commits.
func TestEvidenceInATransaction(t *testing.T) {
	evident(t, semel.Operation{Evidence: semel.EvidenceDecisions}, func(t *testing.T, e *semel.Engine, st *memstore.Store, s *scribe) {
		b := newBase(st)
		_, err := e.DoTx(t.Context(), call("k"), b.begin, row("k", semel.Aborted(errors.New("no"))))
		wantCode(t, err, semel.CodeAborted)
		if got := told(t, st, "k"); len(got) != 0 {
			t.Errorf("what was rolled back left %q", got)
		}
		for range 2 {
			_, err = e.DoTx(t.Context(), call("k"), b.begin, row("k", nil))
			must(t, err)
		}
		if got, want := told(t, st, "k"), []string{"claimed processing", "ended completed completed"}; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		tx, err := b.begin(t.Context())
		must(t, err)
		_, a, err := e.BeginTx(t.Context(), tx, call("two"))
		must(t, err)
		must(t, a.Complete(t.Context(), data("x")))
		must(t, tx.Commit(t.Context()))
		if got, want := told(t, st, "two"), []string{"claimed processing", "ended completed completed"}; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		if want := []string{"k replay"}; !slices.Equal(s.decided, want) {
			t.Errorf("told of %q", s.decided)
		}
	})
}

func TestEvidenceNeedsAStoreAndAWitness(t *testing.T) {
	op := semel.Operation{Name: "op", Evidence: semel.EvidenceChanges}
	plain := bare{memstore.New()}
	for name, c := range map[string]struct {
		store semel.Store
		opts  semel.Options
		want  string
	}{
		"no witness":              {memstore.New(), semel.Options{}, "Options.Witness is not set"},
		"a store without the log": {plain, semel.Options{Witness: &scribe{}}, "this store can't write"},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := semel.New(c.store, &c.opts)
			must(t, err)
			err = e.Register(op)
			if wantCode(t, err, semel.CodeInvalidOperation); !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			must(t, e.Register(semel.Operation{Name: "op", Evidence: semel.EvidenceNone}))
		})
	}
	op.Evidence = "all"
	wantCode(t, op.Validate(), semel.CodeInvalidOperation)
}

// An operator may settle by force what an engine does not know the operation of. What it
// changes is evidence all the same.
func TestAnEngineThatDoesNotKnowTheOperationKeepsEvidence(t *testing.T) {
	evident(t, semel.Operation{Evidence: semel.EvidenceChanges, Lease: 3 * time.Second}, func(t *testing.T, e *semel.Engine, st *memstore.Store, _ *scribe) {
		begin(t, e, call("k")).Detach() // the holder is gone
		stranger, err := semel.New(st, &semel.Options{Witness: &scribe{}})
		must(t, err)
		pass(time.Minute)
		_, err = e.Sweep(t.Context())
		must(t, err)
		_, err = stranger.Settle(t.Context(), id("k"), semel.Settlement{Outcome: semel.DispositionAborted, Force: true}, "looked")
		must(t, err)
		if got, want := told(t, st, "k"), []string{"claimed processing", "held processing", "settled failed aborted"}; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
}

// flaky is a store whose log or purge fails.
type flaky struct {
	*memstore.Store
	log, purge error
}

func (f *flaky) Extras() store.Extras {
	x := f.Store.Extras()
	x.Evidence, x.Purge = f, f
	return x
}

func (f *flaky) AppendEvidence(ctx context.Context, entries []store.Entry) error {
	return errors.Join(f.Store.AppendEvidence(ctx, entries), f.log)
}

func (f *flaky) Purge(ctx context.Context, refs []store.Ref) (int, error) {
	if f.purge != nil {
		return 0, f.purge
	}
	return f.Store.Purge(ctx, refs)
}

func TestAPurgeByAnOperatorIsEvidentBeforeItHappens(t *testing.T) {
	clause.Proves(t, "IDS-XII.1")
	evident(t, semel.Operation{Evidence: semel.EvidenceChanges}, func(t *testing.T, _ *semel.Engine, st *memstore.Store, s *scribe) {
		f := &flaky{Store: st}
		op := semel.Operation{Name: "op", Evidence: semel.EvidenceChanges}
		quiet := semel.Operation{Name: "quiet"}
		e, err := semel.New(f, &semel.Options{Operations: []semel.Operation{op, quiet}, Witness: s})
		must(t, err)
		must(t, begin(t, e, call("k")).Complete(t.Context(), data("x")))
		unseen := call("unseen")
		unseen.Operation = "quiet"
		must(t, begin(t, e, unseen).Complete(t.Context(), data("x")))
		pass(2 * time.Second)

		f.log = errors.New("the log is full")
		wantCode(t, e.Purge(t.Context(), id("k"), semel.Removal{Reason: "asked to"}), semel.CodeStoreUnavailable)
		decides(t, e, call("k"), semel.Replay) // nothing is deleted without evidence
		f.log, f.purge = nil, errors.New("cut off")
		wantCode(t, e.Purge(t.Context(), id("k"), semel.Removal{Reason: "asked to"}), semel.CodeStoreUnavailable)
		decides(t, e, call("k"), semel.Replay)
		f.purge = nil
		must(t, e.Purge(t.Context(), id("k"), semel.Removal{Reason: "asked to"}))
		if _, err := e.Lookup(t.Context(), id("k")); !errors.Is(err, semel.ErrNotFound) {
			t.Errorf("got %v", err)
		}
		begin(t, e, call("k"))
		purged := "purged completed completed"
		want := []string{"claimed processing", "ended completed completed", purged, purged, purged, "claimed processing"}
		if got := told(t, st, "k"); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		hidden := id("unseen")
		hidden.Operation = "quiet"
		must(t, e.Purge(t.Context(), hidden, semel.Removal{Reason: "asked to"}))
		if got := told(t, st, "unseen"); len(got) != 0 {
			t.Errorf("told of an operation without evidence: %q", got)
		}
	})
}

func TestAPurgeErasesEvidenceWhereItIsAskedTo(t *testing.T) {
	evident(t, semel.Operation{Evidence: semel.EvidenceChanges}, func(t *testing.T, e *semel.Engine, st *memstore.Store, s *scribe) {
		for _, key := range []string{"kept", "erased"} {
			must(t, begin(t, e, call(key)).Complete(t.Context(), data("x")))
		}
		pass(2 * time.Second)
		blind, err := semel.New(st, nil)
		must(t, err)
		wantCode(t, blind.Purge(t.Context(), id("erased"), semel.Removal{Reason: "r", Force: true, EraseEvidence: true}), semel.CodeUnsupported)
		must(t, e.Purge(t.Context(), id("kept"), semel.Removal{Reason: "r"}))
		if len(s.erased) != 0 {
			t.Errorf("nobody asked for it: %q", s.erased)
		}

		s.fail = errors.New("the log is full")
		wantCode(t, e.Purge(t.Context(), id("erased"), semel.Removal{Reason: "r", EraseEvidence: true}), semel.CodeStoreUnavailable)
		if _, err := e.Lookup(t.Context(), id("erased")); err != nil {
			t.Errorf("without the record nobody can ask again: %v", err)
		}
		s.fail = nil
		must(t, e.Purge(t.Context(), id("erased"), semel.Removal{Reason: "r", EraseEvidence: true}))
		if _, err := e.Lookup(t.Context(), id("erased")); !errors.Is(err, semel.ErrNotFound) || !slices.Equal(s.erased, []string{"erased", "erased"}) {
			t.Errorf("got %v, %q", err, s.erased)
		}
	})
}

// bare has the four verbs only.
type bare struct{ semel.Store }

func (bare) Extras() store.Extras { return store.Extras{} }

// A settlement of one effect that leaves the record held is a change of the ledger.
func TestASettledEffectIsToldAsOne(t *testing.T) {
	evident(t, semel.Operation{Evidence: semel.EvidenceChanges}, func(t *testing.T, e *semel.Engine, st *memstore.Store, _ *scribe) {
		a := begin(t, e, call("k"))
		for _, name := range []string{"first", "second"} {
			_, err := a.StartEffect(t.Context(), name)
			must(t, err)
		}
		must(t, a.Hold(t.Context(), "away"))
		before := len(told(t, st, "k"))
		_, err := e.Settle(t.Context(), id("k"), semel.Settlement{Effects: []store.EffectFinding{{Name: "first", State: store.EffectConfirmed}}}, "looked")
		must(t, err)
		if got := told(t, st, "k")[before:]; !slices.Equal(got, []string{"effect processing"}) {
			t.Errorf("told of %q", got)
		}
	})
}
