package verdict

import (
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/store"
)

var (
	noon   = store.InstantOf(time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC))
	olga   = &store.Settled{By: store.ByOperator, Who: "olga", Reason: "seen at the bank"}
	asked  = &store.Settled{By: store.ByReconciler, Who: "stripe"}
	broken = &store.Failure{Code: "card_declined", Message: "no money"}
)

func ended(d store.Disposition, earlier ...store.AttemptRecord) store.Record {
	rec := store.Record{State: store.Failed, Disposition: d, Attempt: 1 + len(earlier), Earlier: earlier, Fence: 100}
	if d == store.DispositionCompleted {
		rec.State = store.Completed
	}
	return rec
}

func was(d store.Disposition, by *store.Settled) store.AttemptRecord {
	return store.AttemptRecord{Number: 1, Fence: 1, Disposition: d, Settled: by}
}

func with(rec store.Record, change func(*store.Record)) store.Record { change(&rec); return rec }

func running(rec store.Record) store.Record {
	rec.State, rec.Disposition, rec.LeaseUntil = store.Processing, 0, noon+1
	return rec
}

func event1(state store.MessageState, tries int) store.Record {
	rec := ended(store.DispositionCompleted)
	rec.Door, rec.Outbox = "webhook", []store.Message{{Name: "item", Destination: "billing", State: state, Tries: tries}}
	return rec
}

func undone(state store.CompensationState) store.Record {
	rec := ended(store.DispositionCompleted)
	rec.Compensation = &store.Compensation{State: state, Reason: "returned", Failure: broken}
	return rec
}

func settled(d store.Disposition, by *store.Settled) store.Record {
	rec := ended(d)
	rec.Settled = by
	return rec
}

const (
	completed = store.DispositionCompleted
	rejected  = store.DispositionRejected
	failed    = store.DispositionFailed
	aborted   = store.DispositionAborted
	abandoned = store.DispositionAbandoned
)

// Every state has one sentence, which doesn't claim more than the store knows.
func TestEveryState(t *testing.T) {
	ledger := func(rec *store.Record) { rec.Policy.Ledger = true }
	for _, c := range []struct {
		name   string
		rec    store.Record
		state  State
		counts Counts
		says   string
	}{
		{"completed", ended(completed), Executed, Counts{1, 1, 0, 0}, "executed once"},
		{"rejected", with(ended(rejected), func(r *store.Record) { r.Failure = broken }), Rejected, Counts{1, 0, 0, 0}, "rejected after it was begun once: card_declined: no money"},
		{"failed", ended(failed), Failed, Counts{1, 0, 0, 0}, "failed after it was begun once"},
		{"aborted", ended(aborted), Aborted, Counts{1, 0, 0, 0}, "aborted after it was begun once: nothing was done, and the next delivery runs"},
		{"abandoned", ended(abandoned), Abandoned, Counts{1, 0, 0, 1}, "abandoned after it was begun once: its holder went away, and the next delivery runs"},
		{"released", settled(abandoned, olga), Released, Counts{1, 0, 0, 1}, "released by olga: seen at the bank; begun once, nobody knows whether its work was done, and the next delivery runs"},
		{"settled as completed", settled(completed, olga), Settled, Counts{1, 0, 1, 0}, "settled as completed by olga: seen at the bank; begun once"},
		{"settled by the reconciler", settled(completed, asked), Settled, Counts{1, 0, 1, 0}, "settled as completed by the reconciler, which asked stripe; begun once"},
		{"settled as rejected", settled(rejected, olga), Settled, Counts{1, 0, 0, 0}, "settled as rejected by olga: seen at the bank; begun once"},
		{"settled as failed", settled(failed, olga), Settled, Counts{1, 0, 0, 0}, "settled as failed by olga: seen at the bank; begun once"},
		{"settled as aborted", settled(aborted, olga), Settled, Counts{1, 0, 0, 0}, "settled as aborted by olga: seen at the bank; begun once"},
		{"running", running(ended(0)), Running, Counts{1, 0, 0, 1}, "being executed"},
		{"silent", with(running(ended(0)), func(r *store.Record) { r.LeaseUntil, r.UpdatedAt = noon-1, noon }), Silent, Counts{1, 0, 0, 1}, "begun once, and its holder is silent since 2026-11-26 12:00:00: the next sweep decides what happens to it"},
		{"held", with(running(ended(0)), func(r *store.Record) { r.Held, r.HeldReason = true, "no answer" }), Held, Counts{1, 0, 0, 1}, "held after it was begun once: nobody knows whether its work was done: no answer"},
		{"takeover that runs", running(ended(0, was(abandoned, nil))), Running, Counts{2, 0, 0, 2}, "being executed; attempt 1 may have done it too: nobody knows"},
		{"takeover", ended(completed, was(abandoned, nil)), Executed, Counts{2, 1, 0, 1}, "executed by attempt 2; attempt 1 may have done it too: nobody knows"},
		{"takeover before any effect", with(ended(completed, was(abandoned, nil)), ledger), Executed, Counts{2, 1, 0, 0}, "executed by attempt 2; attempt 1 was abandoned before any effect"},
		{"takeover after an effect", with(ended(completed, was(abandoned, nil)), func(r *store.Record) { r.Policy.Ledger, r.Effects = true, []store.EffectRecord{{Fence: 1}} }), Executed, Counts{2, 1, 0, 1}, "executed by attempt 2; attempt 1 may have done it too: nobody knows"},
		{"run after a release", with(ended(completed, was(abandoned, olga)), ledger), Executed, Counts{2, 1, 0, 1}, "executed by attempt 2; attempt 1 may have done it too: nobody knows (released by olga: seen at the bank)"},
		{"run after a failure", ended(completed, was(failed, nil)), Executed, Counts{2, 1, 0, 0}, "executed by attempt 2; attempt 1 failed"},
		{"run after nothing", ended(completed, was(aborted, nil)), Executed, Counts{2, 1, 0, 0}, "executed by attempt 2; attempt 1 aborted"},
		{"run after a settlement", ended(completed, was(aborted, olga)), Executed, Counts{2, 1, 0, 0}, "executed by attempt 2; attempt 1 was settled as aborted by olga: seen at the bank"},
		{"many attempts", with(ended(completed), func(r *store.Record) { r.Attempt = 3 }), Executed, Counts{3, 1, 0, 2}, "executed by attempt 3; 2 earlier attempts are no longer kept"},
		{"being undone", undone(store.CompensationStarted), Undoing, Counts{1, 1, 0, 0}, "executed once, and it is being undone: returned"},
		{"undone", undone(store.CompensationDone), Undone, Counts{1, 1, 0, 0}, "executed once, and undone later: returned"},
		{"not undone", undone(store.CompensationFailed), UndoFailed, Counts{1, 1, 0, 0}, "executed once, and undoing it failed: card_declined: no money"},
		{"settled and undone", with(undone(store.CompensationDone), func(r *store.Record) { r.Settled = olga }), Undone, Counts{1, 0, 1, 0}, "settled as completed by olga: seen at the bank, and undone later: returned"},
		{"queued", event1(store.MessagePending, 0), Queued, Counts{}, "accepted and not handled yet"},
		{"tried", event1(store.MessagePending, 1), Queued, Counts{1, 0, 0, 1}, "accepted and not handled yet after 1 failed try"},
		{"handled", event1(store.MessageDelivered, 0), Handled, Counts{1, 1, 0, 0}, "accepted, and handed to billing"},
		{"parked", event1(store.MessageParked, 0), Parked, Counts{}, "accepted and not handled: it is parked"},
		{"discarded", event1(store.MessageDiscarded, 0), Discarded, Counts{}, "accepted and not handled: it was discarded"},
		{"unconfirmed", with(ended(aborted), func(r *store.Record) { r.Confirmation = &store.Confirmation{} }), Unconfirmed, Counts{}, "not begun: it waits for its confirmation"},
		{"mark of a sequence", store.Record{Mark: &store.Mark{}}, SequenceMark, Counts{}, "no call: it orders the numbers of a sequence"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if v := Of(&Facts{Record: &c.rec, Now: noon}); v.State != c.state || v.Counts != c.counts || v.Says != c.says {
				t.Errorf("got  %+v\nwant %s %+v %q", v, c.state, c.counts, c.says)
			}
		})
	}
}

// What a purge has taken away is told, and counts.
func TestPurged(t *testing.T) {
	rec := ended(completed)
	v := Of(&Facts{Record: &rec, Now: noon, Before: []Life{{Counts{1, 1, 0, 0}, noon, "local", "asked"}}})
	if want := "executed once; before that it was begun once, executed once, and purged at 2026-11-26 12:00:00 by local: asked"; v.Says != want || v.Done != 2 || v.AtMost() != 2 {
		t.Errorf("%+v", v)
	}
}

func TestTogether(t *testing.T) {
	call := func(op, key string, n int, rec store.Record) Facts {
		rec.ID = store.ID{Operation: op, Key: key}
		rec.StartedAt = noon.Add(time.Duration(n) * time.Minute)
		rec.Fingerprint = store.FingerprintOf(store.SchemeRaw, []byte("42 EUR"))
		return Facts{Record: &rec, Now: noon}
	}
	one, two := call("pay", "pay-9911", 0, ended(completed)), call("pay", "pay-9911-again", 1, ended(completed))
	held := call("pay", "pay-3", 2, with(running(ended(0)), func(r *store.Record) { r.Held = true }))
	other := call("pay", "pay-4", 3, ended(completed))
	other.Record.Fingerprint = store.FingerprintOf(store.SchemeRaw, []byte("43 EUR"))
	for want, calls := range map[string][]Facts{
		"9911: no call": nil,
		"9911: 1 call, executed once: pay-9911 at 12:00:00":                                                                        {one},
		"9911: 2 calls, executed twice: pay-9911 at 12:00:00, pay-9911-again at 12:01:00; all with the same payload":               {one, two},
		"9911: 2 calls, executed twice: pay-9911 at 12:00:00, pay-4 at 12:03:00; their payloads differ":                            {one, other},
		"9911: 2 calls, done once and maybe more often: pay-9911 at 12:00:00, pay-3 at 12:02:00 (held); all with the same payload": {one, held},
		"9911: 2 calls, pay executed once: pay-9911 at 12:00:00; carts.update executed once: 9911 at 12:00:00":                     {one, call("carts.update", "9911", 0, ended(completed))},
	} {
		if got := Together("9911", calls, false); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got := Together("9911", []Facts{one}, true); !strings.HasPrefix(got, "9911: at least 1 call,") {
		t.Error(got)
	}
}
