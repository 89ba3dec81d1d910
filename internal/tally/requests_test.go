package tally

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/behind"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// answered is a delivery as a door tells of it.
func answered(rec *semel.Record, request string, d semel.Decision, status int) semel.Delivered {
	return semel.Delivered{ID: rec.ID, Decision: d, Attempt: rec.Attempt, Request: request, Status: status}
}

// finds wants the calls with these keys under the id of a delivery.
func (n *node) finds(t *testing.T, request string, keys ...string) {
	t.Helper()
	found, more, err := Find(t.Context(), n.Engine, nil, request, 10)
	if err != nil || more || len(found) != len(keys) {
		t.Fatalf("%s: found %d calls, %t, %v, want %q", request, len(found), more, err, keys)
	}
	for i := range found {
		if found[i].ID.Key != keys[i] || len(found[i].Result.Data) == 0 {
			t.Errorf("%s: found %+v, want %s", request, found[i], keys[i])
		}
	}
}

// TestACallIsFoundByItsDuplicates: by the ids of the newest ones, on every node, as long as its
// record is there.
func TestACallIsFoundByItsDuplicates(t *testing.T) {
	clause.Proves(t, "FOR-ID.2")
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		a, b := start(t, st), start(t, st)
		defer b.stop()
		rec, other := a.deliver(t, "k"), a.deliver(t, "other")
		a.tally.Answered(answered(rec, "req_1", semel.Execute, 200))
		a.tally.Answered(answered(rec, "req_2", semel.Replay, 200))
		b.tally.Answered(answered(rec, "req_3", semel.Conflict, 409))
		a.tally.Answered(answered(other, "req_3", semel.InFlight, 409))
		a.tally.Answered(answered(rec, "", semel.Replay, 200))
		a.tally.Answered(answered(rec, "stranger", semel.OtherCaller, 409))
		pass(behind.Pause)
		b.finds(t, "req_2", "k")
		b.finds(t, "req_1") // by its attributes, if its door gives it any
		b.finds(t, "stranger")
		b.finds(t, "req")
		if found, _, err := Find(t.Context(), b.Engine, nil, "req_3", 10); err != nil || len(found) != 2 {
			t.Errorf("%d calls have a delivery req_3, %v", len(found), err)
		}
		for i := range maxRequests {
			a.tally.Answered(answered(rec, "again_"+strconv.Itoa(i), semel.Replay, 200))
		}
		a.stop()
		b.finds(t, "again_0", "k")
		b.finds(t, "again_"+strconv.Itoa(maxRequests-1), "k")
		b.finds(t, "req_2") // older than those
		b.counts(t, rec, Counts{"execute": 1})
		if err := b.Purge(t.Context(), rec.ID, semel.Removal{Reason: "test", Force: true}); err != nil {
			t.Fatal(err)
		}
		b.finds(t, "again_0")
	})
}

// TestAttemptsThatTheRecordDoesNotName are found by their ids: ones that came to nothing, and
// ones after the first. Nothing is written about any other.
func TestAttemptsThatTheRecordDoesNotName(t *testing.T) {
	clause.Proves(t, "FOR-ID.2")
	for name, c := range map[string]struct {
		end      func(*semel.Attempt, context.Context) error
		attempts int
		status   int
		finds    bool
	}{
		"came to nothing": {func(a *semel.Attempt, ctx context.Context) error { return a.Abort(ctx, store.Failure{}) }, 1, 401, true},
		"after one that failed": {func(a *semel.Attempt, ctx context.Context) error {
			return a.Complete(ctx, semel.Result{Data: []byte("2")})
		}, 2, 200, true},
		"refused": {func(a *semel.Attempt, ctx context.Context) error {
			return a.Reject(ctx, store.Failure{}, semel.Result{Data: []byte("no")})
		}, 1, 404, false},
		"the only one": {func(a *semel.Attempt, ctx context.Context) error {
			return a.Complete(ctx, semel.Result{Data: []byte("1")})
		}, 1, 200, false},
	} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			y := New(st)
			engine, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "pay", Window: time.Hour, OnFailure: semel.RetryFailure}}})
			if err != nil {
				t.Fatal(err)
			}
			begin := func(request string) *semel.Attempt {
				ans, err := engine.Begin(t.Context(), semel.Call{Operation: "pay", Key: "k", Attributes: store.Attributes{store.AttributeRequestID: request}})
				if err != nil || ans.Decision != semel.Execute {
					t.Fatal(ans.Decision, err)
				}
				return ans.Attempt
			}
			for range c.attempts - 1 {
				if err := begin("req_1").Fail(t.Context(), store.Failure{}, semel.Result{}); err != nil {
					t.Fatal(err)
				}
			}
			a := begin("req_2")
			if err := c.end(a, t.Context()); err != nil {
				t.Fatal(err)
			}
			y.Answered(answered(a.Record(), "req_2", semel.Execute, c.status))
			y.Flush(t.Context())
			found, _, err := Find(t.Context(), engine, nil, "req_2", 10)
			if err != nil || (len(found) == 1) != c.finds {
				t.Errorf("found %d, %v", len(found), err)
			}
			_, err = st.Get(t.Context(), store.CountsOf(a.ID()))
			if written := !errors.Is(err, store.ErrNotFound); written != c.finds {
				t.Errorf("a cell is there: %t, %v", written, err)
			}
		})
	}
}

// TestAnEarlierProgramCounts: it knows nothing of ids, reads the counts, and writes its own.
func TestAnEarlierProgramCounts(t *testing.T) {
	st := memstore.New()
	n := start(t, st)
	defer n.stop()
	rec := n.deliver(t, "k")
	n.tally.Answered(answered(rec, "req_2", semel.Replay, 200))
	n.tally.Count(rec.ID, semel.Replay)
	n.tally.Flush(t.Context())
	cell := store.NewCell(st, store.CountsOf(rec.ID))
	value, err := cell.Load(t.Context())
	if err != nil || string(value.Data) != `{"since":"`+rec.CreatedAt.String()+`","counts":{"replay":1}}` || len(value.Attributes) != 2 {
		t.Fatalf("the cell has %s %v, %v", value.Data, value.Attributes, err)
	}
	value.Attributes = nil // as it writes
	if _, ok, err := cell.Swap(t.Context(), value, value); !ok || err != nil {
		t.Fatal(ok, err)
	}
	n.finds(t, "req_2")
	n.counts(t, rec, Counts{"execute": 1, "replay": 1})
}
