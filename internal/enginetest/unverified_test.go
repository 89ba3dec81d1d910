package enginetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// A made-up credential that is refused leaves a tombstone for a minute, and nothing in it.
func TestAnAbortedCallOfAnUnverifiedCallerLeavesATombstone(t *testing.T) {
	inBubble(t, semel.Operation{KeepPayload: true, Financial: true, OnExpiry: semel.DeleteExpired}, func(t *testing.T, r *rig) {
		c := boundCall("made up", "x")
		c.Payload, c.Attributes = []byte("secret"), store.Attributes{"order": "o-1"}
		a := begin(t, r.Engine, c)
		must(t, a.Abort(t.Context(), store.Failure{Code: "401", Message: "who are you?"}))
		rec, err := r.store.Get(t.Context(), c.ID(""))
		must(t, err)
		if rec.Fence != a.Fence() || rec.Payload != nil || rec.Attributes != nil || rec.Failure != nil || !rec.Fingerprint.IsZero() {
			t.Errorf("left %+v", rec)
		}
		other := boundCall("made up", "y") // nothing happened, so another payload is no conflict
		b := begin(t, r.Engine, other)
		if b.Number() != 1 || b.Fence() <= a.Fence() {
			t.Errorf("attempt %d under fence %d after %d", b.Number(), b.Fence(), a.Fence())
		}
		must(t, b.Abort(t.Context(), store.Failure{}))
		pass(2 * time.Minute)
		sweepAlone(t, r.Engine)
		if n := r.store.Len(); n != 0 {
			t.Errorf("%d records are left after two minutes", n)
		}
	})
}

// A verified caller's aborted call stays for its window, for whoever asks what became of it.
func TestAnAbortedCallOfAVerifiedCallerStays(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		must(t, begin(t, r.Engine, call("k")).Abort(t.Context(), store.Failure{Code: "429"}))
		pass(2 * time.Minute)
		sweepAlone(t, r.Engine)
		if a := begin(t, r.Engine, call("k")); a.Number() != 2 {
			t.Errorf("attempt %d", a.Number())
		}
	})
}

// Tombstones have a budget for each caller, and what is given back isn't lost to it.
func TestTombstonesHaveABudget(t *testing.T) {
	quotas := semel.Quotas{PrincipalRecords: 10, Account: func(context.Context, *semel.Record) (string, string) { return "", "network" }}
	inBubbleWith(t, semel.Options{Quotas: quotas}, semel.Operation{}, func(t *testing.T, r *rig) {
		most := 0
		throttled := map[semel.Limit]int{}
		for i := range 600 {
			c := boundCall(fmt.Sprint("made up ", i), "x")
			c.Key = fmt.Sprint("key ", i)
			ans, err := r.Begin(t.Context(), c)
			must(t, err)
			if ans.Attempt != nil {
				must(t, ans.Attempt.Abort(t.Context(), store.Failure{Code: "401"}))
			} else {
				throttled[ans.Limit]++
			}
			pass(time.Second)
			if i%10 == 0 {
				sweepAlone(t, r.Engine)
			}
			most = max(most, r.store.Len())
		}
		if most > 30 || throttled[semel.LimitAbortedCalls] < 400 {
			t.Errorf("up to %d records at a time; throttled: %v", most, throttled)
		}
		pass(2 * time.Minute)
		must(t, begin(t, r.Engine, boundCall("honest", "x")).Complete(t.Context(), data("x")))
	})
}

// A refusal stays with the caller who got it, as a record with a window of its own, whoever has
// the key since.
func TestARefusalIsKeptForItsCaller(t *testing.T) {
	var archived []semel.Record
	opts := semel.Options{Archive: func(_ context.Context, recs []semel.Record) error {
		archived = append(archived, recs...)
		return nil
	}}
	inBubbleWith(t, opts, semel.Operation{OnExpiry: semel.ArchiveExpired}, func(t *testing.T, r *rig) {
		owner, stranger := boundCall("owner", "x"), boundCall("stranger", "x")
		owner.Attributes = store.Attributes{"order": "o-1"}
		must(t, begin(t, r.Engine, owner).Reject(t.Context(), store.Failure{Code: "422"}, data("declined")))
		replayed := func(what string) {
			t.Helper()
			if ans := decides(t, r.Engine, owner, semel.Replay); string(ans.Record.Result.Data) != "declined" {
				t.Errorf("%s: got %q", what, ans.Record.Result.Data)
			}
			page, err := r.Search(t.Context(), store.Query{Attributes: store.Attributes{"order": "o-1"}})
			must(t, err)
			if len(page.Records) != 1 {
				t.Errorf("%s: found %d records", what, len(page.Records))
			}
		}
		replayed("before")
		a := begin(t, r.Engine, stranger)
		replayed("while another runs")
		changed := owner
		changed.Fingerprint = payload("another")
		decides(t, r.Engine, changed, semel.Conflict)
		must(t, a.Abort(t.Context(), store.Failure{Code: "401"}))
		replayed("after another was refused")
		pass(2 * time.Minute) // the tombstone isn't forgotten before the refusal
		sweepAlone(t, r.Engine)
		replayed("when the tombstone's time is over")
		short := stranger
		short.Window = time.Minute
		must(t, begin(t, r.Engine, short).Complete(t.Context(), data("done")))
		pass(time.Hour)
		sweepAlone(t, r.Engine)
		replayed("when another's call is over")
		decides(t, r.Engine, boundCall("third", "x"), semel.OtherCaller)
		pass(24 * time.Hour)
		sweepAlone(t, r.Engine)
		pass(24 * time.Hour)
		sweepAlone(t, r.Engine)
		if n := r.store.Len(); n != 0 {
			t.Errorf("%d records are left", n)
		}
		found := 0
		for i := range archived {
			if archived[i].Attributes["order"] == "o-1" && archived[i].Disposition == semel.DispositionRejected {
				found++
			}
		}
		if found != 1 {
			t.Errorf("the refusal was archived %d times", found)
		}
	})
}

// A crash after the refusal was set aside, and before the claim that it makes room for, changes
// nothing.
func TestARefusalIsSetAsideBeforeTheClaim(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		owner, stranger := boundCall("owner", "x"), boundCall("stranger", "x")
		must(t, begin(t, r.Engine, owner).Reject(t.Context(), store.Failure{Code: "422"}, data("declined")))
		st := &hooked{Store: r.store, id: stranger.ID("")}
		opts := r.opts
		e, err := semel.New(st, &opts)
		must(t, err)
		st.before = func() { // the claim is about to be written
			decides(t, r.Engine, owner, semel.Replay)
			must(t, begin(t, r.Engine, boundCall("third", "x")).Complete(t.Context(), data("third")))
		}
		decides(t, e, stranger, semel.OtherCaller)
		decides(t, r.Engine, owner, semel.Replay)
	})
}

// A hold of a caller whom nobody verified ends with its window, unless it is about money.
func TestHoldsOfUnverifiedCallersEnd(t *testing.T) {
	for _, op := range []semel.Operation{{Window: 48 * time.Hour}, {Financial: true, OnExpiry: semel.DeleteExpired, Window: 48 * time.Hour}} {
		inBubble(t, op, func(t *testing.T, r *rig) {
			stranger := boundCall("made up", "x")
			must(t, begin(t, r.Engine, stranger).Hold(t.Context(), "the upstream closed the connection"))
			verified := call("verified")
			must(t, begin(t, r.Engine, verified).Hold(t.Context(), "the upstream closed the connection"))
			pass(47 * time.Hour)
			sweepAlone(t, r.Engine)
			decides(t, r.Engine, stranger, semel.Held)
			pass(2 * time.Hour)
			sweepAlone(t, r.Engine)
			decides(t, r.Engine, verified, semel.Held)
			if op.Financial {
				decides(t, r.Engine, stranger, semel.Held)
			} else {
				must(t, begin(t, r.Engine, boundCall("owner", "x")).Complete(t.Context(), data("x")))
			}
		})
	}
}

func TestHoldsOfUnverifiedCallersAreBounded(t *testing.T) {
	quotas := semel.Quotas{UnverifiedHolds: 2, Account: func(context.Context, *semel.Record) (string, string) { return "", "network" }}
	inBubbleWith(t, semel.Options{Quotas: quotas}, semel.Operation{}, func(t *testing.T, r *rig) {
		bound := func(key string) semel.Call {
			c := boundCall("made up", "x")
			c.Key = key
			return c
		}
		for i := range 2 {
			must(t, begin(t, r.Engine, bound(fmt.Sprint(i))).Hold(t.Context(), "silence"))
		}
		if ans := decides(t, r.Engine, bound("third"), semel.Throttled); ans.Limit != semel.LimitUnverifiedHolds {
			t.Error(ans.Limit)
		}
		must(t, begin(t, r.Engine, call("verified")).Complete(t.Context(), data("x")))
		held := bound("0")
		_, err := r.Settle(t.Context(), held.ID(""), semel.Settlement{Outcome: semel.DispositionAborted}, "it never came")
		must(t, err)
		must(t, begin(t, r.Engine, bound("third")).Complete(t.Context(), data("x")))
	})
}

// A caller whose call was aborted may send another payload under its key: to follow a redirect, or
// because the first one was refused before anything was done. What happened is never contradicted.
func TestAnAbortedCallMayBeSentWithAnotherPayload(t *testing.T) {
	inBubble(t, semel.Operation{OnFailure: semel.RetryFailure}, func(t *testing.T, r *rig) {
		first, other := call("k"), call("k")
		other.Fingerprint = payload("followed")
		a := begin(t, r.Engine, first)
		decides(t, r.Engine, other, semel.Conflict)
		must(t, a.Abort(t.Context(), store.Failure{Code: "307"}))
		b := begin(t, r.Engine, other)
		if rec := b.Record(); rec.Attempt != 1 || rec.Fence <= a.Fence() || rec.Fingerprint != other.Fingerprint {
			t.Errorf("it isn't a new call: %+v", rec)
		}
		decides(t, r.Engine, first, semel.Conflict)
		must(t, b.Fail(t.Context(), store.Failure{Code: "500"}, semel.Result{}))
		must(t, begin(t, r.Engine, other).Abort(t.Context(), store.Failure{Code: "429"}))
		decides(t, r.Engine, first, semel.Conflict) // something may have happened by the first attempt
	})
}

func sweepAlone(t *testing.T, e *semel.Engine) {
	t.Helper()
	_, err := e.Sweep(t.Context())
	must(t, err)
}
