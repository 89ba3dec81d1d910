package evidence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// gated is a store whose AppendEvidence waits, and fails, as it is told.
type gated struct {
	*memstore.Store
	shut   bool
	gate   chan struct{} // of a shut one, until it is closed
	fails  atomic.Int64
	writes atomic.Int64
}

func (x *gated) Extras() store.Extras {
	all := x.Store.Extras()
	all.Evidence = x
	return all
}

func (g *gated) AppendEvidence(ctx context.Context, entries []store.Entry) error {
	g.writes.Add(1)
	if g.shut {
		select {
		case <-g.gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if g.fails.Add(-1) >= 0 {
		return errors.New("no")
	}
	return g.Store.AppendEvidence(ctx, entries)
}

// decide tells a log of a replay.
func decide(ctx context.Context, l *evidence.Log, level semel.EvidenceLevel, key string) error {
	c := call("acme", key, "p")
	rec := &semel.Record{ID: semel.ID{Tenant: "acme", Operation: "op", Key: key}, State: semel.Completed, Disposition: semel.DispositionCompleted, Attempt: 1}
	return l.Decided(ctx, &semel.Operation{Name: "op", Evidence: level}, &c, &semel.Answer{Decision: semel.Replay, Record: rec}, nil)
}

func inBubble(t *testing.T, st *gated, opts *evidence.Options, body func(t *testing.T, l *evidence.Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st.Store, st.gate = memstore.New(), make(chan struct{})
		l, err := evidence.New(st, newKeys(t), opts)
		if err != nil {
			t.Fatal(err)
		}
		body(t, l)
	})
}

func count(t *testing.T, st *gated) int {
	t.Helper()
	entries, err := st.ReadEvidence(context.Background(), 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestDecisionsAreWrittenTogether(t *testing.T) {
	st := &gated{}
	inBubble(t, st, nil, func(t *testing.T, l *evidence.Log) {
		for i := range 500 {
			if err := decide(t.Context(), l, semel.EvidenceDecisions, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if n := count(t, st); n != 0 {
			t.Errorf("%d were written at once", n)
		}
		<-time.After(evidence.DefaultFlushEvery + time.Millisecond)
		synctest.Wait()
		if n := count(t, st); n != 500 || st.writes.Load() != 1 {
			t.Errorf("%d entries in %d writes", n, st.writes.Load())
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := decide(t.Context(), l, semel.EvidenceDecisions, "late"); err == nil {
			t.Error("a closed log takes entries")
		}
	})
}

func TestDurableDecisionsAreWaitedFor(t *testing.T) {
	clause.Proves(t, "IDS-XII.6")
	st := &gated{}
	inBubble(t, st, nil, func(t *testing.T, l *evidence.Log) {
		var work sync.WaitGroup
		for i := range 300 {
			work.Go(func() {
				key := fmt.Sprint(i)
				if err := decide(t.Context(), l, semel.EvidenceDurable, key); err != nil {
					t.Error(err)
				}
				entries, err := st.ReadEvidence(t.Context(), 0, 1<<20)
				if err != nil {
					t.Error(err)
				}
				for _, en := range entries {
					if strings.Contains(string(en.Opening), `"idempotency_key":"`+key+`"`) {
						return
					}
				}
				t.Errorf("entry %s was not durable when it was said to be", key)
			})
		}
		start := time.Now()
		work.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("they waited %v for company", took)
		}
	})
}

func TestUnknownWritesAreRepeated(t *testing.T) {
	st := &gated{}
	st.fails.Store(3)
	var said atomic.Int64
	inBubble(t, st, &evidence.Options{OnError: func(error) { said.Add(1) }}, func(t *testing.T, l *evidence.Log) {
		if err := decide(t.Context(), l, semel.EvidenceDurable, "a"); err != nil {
			t.Error(err)
		}
		if count(t, st) != 1 || said.Load() != 3 {
			t.Errorf("%d entries, %d errors", count(t, st), said.Load())
		}
	})
}

// cancelling is a store that may cancel something of its own in each read.
type cancelling struct {
	*memstore.Store
	on atomic.Bool
}

func (c *cancelling) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	if c.on.Load() {
		return nil, fmt.Errorf("no connection: %w", context.Canceled)
	}
	return c.Store.Get(ctx, id)
}

// A cancellation that isn't that of Run's context is a failure of the store, and told.
func TestACancellationOfTheStoreIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said atomic.Int64
		st := &cancelling{Store: memstore.New()}
		l, err := evidence.New(st, newKeys(t), &evidence.Options{OnError: func(error) { said.Add(1) }})
		if err != nil {
			t.Fatal(err)
		}
		st.on.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Run(ctx); !errors.Is(err, context.DeadlineExceeded) || said.Load() == 0 {
			t.Errorf("Run returned %v, and told %d times of a store that fails", err, said.Load())
		}
	})
}

func TestOverloadIsRefused(t *testing.T) {
	st := &gated{shut: true}
	inBubble(t, st, &evidence.Options{MaxQueue: 10, MaxWait: time.Second, OnError: func(error) {}}, func(t *testing.T, l *evidence.Log) {
		for i := range 10 {
			if err := decide(t.Context(), l, semel.EvidenceDecisions, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		for _, level := range []semel.EvidenceLevel{semel.EvidenceDecisions, semel.EvidenceDurable} {
			start := time.Now()
			if err := decide(t.Context(), l, level, "one too many"); err == nil || time.Since(start) != time.Second {
				t.Errorf("%s: %v after %v", level, err, time.Since(start))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Close(ctx); err == nil || !strings.Contains(err.Error(), "10 entries") {
			t.Errorf("what is lost is not said: %v", err)
		}
		synctest.Wait()
	})
}

func TestRoomIsGivenAgain(t *testing.T) {
	st := &gated{shut: true}
	inBubble(t, st, &evidence.Options{MaxQueue: 10}, func(t *testing.T, l *evidence.Log) {
		var work sync.WaitGroup
		for i := range 50 {
			work.Go(func() {
				if err := decide(t.Context(), l, semel.EvidenceDecisions, fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(st.gate)
		work.Wait()
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := count(t, st); n != 50 {
			t.Errorf("%d entries", n)
		}
	})
}

// TestEngineRefusesWithoutEvidence holds answers back whose evidence can't be kept.
func TestEngineRefusesWithoutEvidence(t *testing.T) {
	st := &gated{}
	inBubble(t, st, &evidence.Options{MaxWait: time.Second, OnError: func(error) {}}, func(t *testing.T, l *evidence.Log) {
		e, err := semel.New(st, &semel.Options{Witness: l, Operations: []semel.Operation{{Name: "op", Evidence: semel.EvidenceDurable}}})
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{Engine: e}
		r.do(t, call("acme", "one", "p"), "x")
		st.fails.Store(1 << 20)
		if _, err := e.Begin(t.Context(), call("acme", "one", "p")); !errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}) {
			t.Errorf("a duplicate is answered without evidence: %v", err)
		}
		st.fails.Store(0)
		if err := errors.Join(l.Close(t.Context()), e.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
