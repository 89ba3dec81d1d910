package verdict

import (
	"cmp"
	"slices"
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

// remembered makes a record one that ended two hours ago, with a window of an hour.
func remembered(r *store.Record) {
	r.Policy = store.Policy{Window: time.Hour, Remember: 24 * time.Hour}
	r.EndedAt, r.ExpiresAt = noon.Add(-2*time.Hour), noon.Add(22*time.Hour)
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
		{"settled as aborted", settled(aborted, olga), Settled, Counts{1, 0, 0, 0}, "settled as aborted by olga: seen at the bank; begun once, and the next delivery runs"},
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
		{"tried", event1(store.MessagePending, 1), Queued, Counts{1, 0, 0, 1}, "accepted and not handled yet after one failed try"},
		{"handled", event1(store.MessageDelivered, 0), Handled, Counts{1, 1, 0, 0}, "accepted, and handed to billing"},
		{"parked", event1(store.MessageParked, 0), Parked, Counts{}, "accepted and not handled: it is parked"},
		{"discarded", event1(store.MessageDiscarded, 0), Discarded, Counts{}, "accepted and not handled: it was discarded"},
		{"effects settled", with(settled(abandoned, &store.Settled{By: store.ByOperator, Who: "olga", At: 7}), func(r *store.Record) {
			r.Effects = []store.EffectRecord{{State: store.EffectRefuted, Settled: &store.Settled{At: 7}}}
		}), Abandoned, Counts{1, 0, 0, 1}, "given back once its effects were settled by olga; begun once, and the next delivery runs"},
		{"run after effects were settled", with(ended(completed, was(abandoned, &store.Settled{By: store.ByOperator, Who: "olga", At: 7})), func(r *store.Record) {
			r.Policy.Ledger, r.Effects = true, []store.EffectRecord{{Fence: 1, State: store.EffectConfirmed, Settled: &store.Settled{At: 7}}}
		}), Executed, Counts{2, 1, 0, 0}, "executed by attempt 2; attempt 1 was given back once its effects were settled by olga"},
		{"remembered", with(ended(completed), remembered), Executed, Counts{1, 1, 0, 0}, "executed once; it ended at 2026-11-26 10:00:00, and its answer was kept until 2026-11-26 11:00:00"},
		{"failed and remembered", with(ended(failed), remembered), Failed, Counts{1, 0, 0, 0}, "failed after it was begun once; it ended at 2026-11-26 10:00:00, and its answer was kept until 2026-11-26 11:00:00"},
		{"not over yet", with(ended(completed), func(r *store.Record) {
			remembered(r)
			r.EndedAt, r.ExpiresAt = noon, noon.Add(24*time.Hour)
		}), Executed, Counts{1, 1, 0, 0}, "executed once"},
		{"unconfirmed", with(ended(aborted), func(r *store.Record) { r.Confirmation = &store.Confirmation{} }), Unconfirmed, Counts{}, "not begun: it waits for its confirmation, by its caller or an operator"},
		{"unconfirmed in time", with(ended(aborted), func(r *store.Record) { r.Confirmation, r.ExpiresAt = &store.Confirmation{}, noon }), Unconfirmed, Counts{}, "not begun: nobody confirmed it in time"},
		{"confirmed", confirmed(noon + 1), Confirmed, Counts{}, "not begun: confirmed by olga: she called; it runs when its caller asks again, until 2026-11-26 12:00:00"},
		{"confirmed without its tokens", with(confirmed(0), func(r *store.Record) { r.Confirmation.Tokens, r.ExpiresAt = nil, noon+1 }), Confirmed, Counts{}, "not begun: confirmed by olga: she called; it runs when its caller asks again, until 2026-11-26 12:00:00"},
		{"confirmed for too long", confirmed(noon), Unconfirmed, Counts{}, "not begun: it waits for its confirmation, by its caller or an operator"},
		{"confirmed and gone", with(confirmed(noon), func(r *store.Record) { r.ExpiresAt = noon }), Unconfirmed, Counts{}, "not begun: confirmed by olga: she called, and its caller didn't ask again in time"},
		{"run after a confirmation", with(ended(completed, was(aborted, &store.Settled{By: store.ByOperator, Who: "olga"})), func(r *store.Record) {
			r.Earlier[0].Failure = &store.Failure{Code: "confirmation_required"}
		}), Executed, Counts{2, 1, 0, 0}, "executed by attempt 2; attempt 1 was confirmed by olga"},
		{"mark of a sequence", store.Record{Mark: &store.Mark{}}, SequenceMark, Counts{}, "no call: it orders the numbers of a sequence"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if v := Of(&Facts{Record: &c.rec, Now: noon, Known: true}); v.State != c.state || v.Counts != c.counts || v.Says != c.says {
				t.Errorf("got  %+v\nwant %s %+v %q", v, c.state, c.counts, c.says)
			}
		})
	}
}

// confirmed is a call that an operator has confirmed until then.
func confirmed(until store.Instant) store.Record {
	return with(settled(aborted, &store.Settled{By: store.ByOperator, Who: "olga", Reason: "she called"}), func(r *store.Record) {
		r.Confirmation = &store.Confirmation{Tokens: []store.ConfirmationToken{{}, {ExpiresAt: until}}}
	})
}

// Where a further proof is needed, nobody but the caller can confirm.
func TestFurtherProof(t *testing.T) {
	v := Of(&Facts{Record: new(with(ended(aborted), func(r *store.Record) { r.Confirmation = &store.Confirmation{} })), Now: noon, Known: true, StepUp: true})
	if want := "not begun: it waits for its confirmation and a further proof, which only its caller can give"; v.Says != want || v.Advice != nil {
		t.Errorf("%+v", v)
	}
}

// Changed says how a record is left, and whether its next delivery runs.
func TestChanged(t *testing.T) {
	for want, rec := range map[string]store.Record{
		"The record is completed.":                               settled(completed, nil),
		"The record is held.":                                    {State: store.Processing, Held: true},
		"The record is abandoned. Its next delivery runs again.": settled(abandoned, nil),
		"The record is abandoned. Its next delivery runs again, and gets the results of confirmed effects instead of repeating them.": with(settled(abandoned, nil), func(r *store.Record) {
			r.Effects = []store.EffectRecord{{State: store.EffectConfirmed}}
		}),
		"The call is confirmed. It runs once, when its caller sends it again until 2026-11-26 12:00:00.": confirmed(noon),
	} {
		if got := Changed(&rec); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// What a purge has taken away is told, and counts.
func TestPurged(t *testing.T) {
	rec := ended(completed)
	v := Of(&Facts{Record: &rec, Now: noon, Known: true, Before: []Life{{Counts{1, 1, 0, 0}, noon, "local", "asked"}}})
	if want := "executed once; before that it was begun once, executed once, and purged at 2026-11-26 12:00:00 by local: asked"; v.Says != want || v.Done != 2 || v.AtMost() != 2 {
		t.Errorf("%+v", v)
	}
}

// What nobody knows is said in every state: whether there was another record before, and what was
// lost by a restore.
func TestUnknown(t *testing.T) {
	rec := ended(completed)
	if got, want := Of(&Facts{Record: &rec, Now: noon}).Says, "executed once; whether an earlier record of it was purged is not known here"; got != want {
		t.Error(got)
	}
	rec.UpdatedAt = noon - 1
	if got, want := Of(&Facts{Record: &rec, Now: noon, Known: true, Epoch: noon}).Says, "executed once; the store was restored from a backup at 2026-11-26 12:00:00, and nobody knows what happened to it in between"; got != want {
		t.Error(got)
	}
	rec.UpdatedAt = noon
	if got := Of(&Facts{Record: &rec, Now: noon, Known: true, Epoch: noon}).Says; got != "executed once" {
		t.Errorf("of a record from after the restore it says %q", got)
	}
}

// Advice fits the state and the class: money isn't released, effects come first, and nothing that
// ran is purged.
func TestAdvice(t *testing.T) {
	held := with(running(ended(0)), func(r *store.Record) { r.Held = true })
	open := with(held, func(r *store.Record) { r.Effects = []store.EffectRecord{{State: store.EffectStarted}} })
	for _, c := range []struct {
		f    Facts
		want []Advice
	}{
		{Facts{Record: &held}, []Advice{Settle}},
		{Facts{Record: &held, Harmless: true}, []Advice{Settle, Release}},
		{Facts{Record: &held, Harmless: true, Epoch: noon}, []Advice{Settle}},
		{Facts{Record: &open, Harmless: true}, []Advice{SettleEffects}},
		{Facts{Record: new(running(ended(0)))}, []Advice{Wait}},
		{Facts{Record: new(event1(store.MessageParked, 1))}, []Advice{ReplayMessage}},
		{Facts{Record: new(confirmed(noon + 1))}, nil},
		{Facts{Record: new(confirmed(noon)), Now: noon}, []Advice{Confirm}},
		{Facts{Record: new(confirmed(noon)), Now: noon, StepUp: true}, nil},
		{Facts{Record: new(with(confirmed(noon), func(r *store.Record) { r.ExpiresAt = noon })), Now: noon}, nil},
		{Facts{Record: new(confirmed(noon)), Now: noon, Epoch: noon}, nil},
		{Facts{Record: new(ended(completed)), Harmless: true}, nil},
		{Facts{Record: new(ended(failed)), Harmless: true}, nil},
	} {
		if got := Of(&c.f).Advice; !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", Of(&c.f).Says, got, c.want)
		}
	}
}

func TestTogether(t *testing.T) {
	call := func(op, key string, n int, rec store.Record) Facts {
		rec.ID = store.ID{Operation: op, Key: key}
		rec.StartedAt = noon.Add(time.Duration(n) * time.Minute)
		rec.Fingerprint = store.FingerprintOf(store.SchemeRaw, []byte("42 EUR"))
		return Facts{Record: &rec, Now: noon, Known: true}
	}
	one, two := call("pay", "pay-9911", 0, ended(completed)), call("pay", "pay-9911-again", 1, ended(completed))
	held := call("pay", "pay-3", 2, with(running(ended(0)), func(r *store.Record) { r.Held = true }))
	other := call("pay", "pay-4", 3, ended(completed))
	other.Record.Fingerprint = store.FingerprintOf(store.SchemeRaw, []byte("43 EUR"))
	for want, calls := range map[string][]Facts{
		"9911: no call": nil,
		"9911: 1 call, executed once: pay-9911 at 12:00:00":                                                                           {one},
		"9911: 2 calls, executed twice: pay-9911 at 12:00:00, pay-9911-again at 12:01:00; all with the same payload":                  {one, two},
		"9911: 2 calls, executed twice: pay-9911 at 12:00:00, pay-4 at 12:03:00; their payloads differ, and where can't be seen here": {one, other},
		"9911: 2 calls, done once and maybe more often: pay-9911 at 12:00:00, pay-3 at 12:02:00 (held); all with the same payload":    {one, held},
		"9911: 2 calls, pay executed once: pay-9911 at 12:00:00; carts.update executed once: 9911 at 12:00:00":                        {one, call("carts.update", "9911", 0, ended(completed))},
	} {
		if got := Together("9911", calls, false); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got := Together("9911", []Facts{one}, true); !strings.HasPrefix(got, "9911: at least 1 call,") {
		t.Error(got)
	}
}

// Where payloads differ is said as far as they are there to be compared.
func TestWherePayloadsDiffer(t *testing.T) {
	for _, c := range []struct{ a, b, same, says string }{
		{`{"id":1,"key":"a"}`, `{"key":"b","id":1}`, "same", "all with the same payload, but for /key"},
		{`{"id":1}`, `{"id":1}`, "same", "all with the same payload"},
		{`{"n":9007199254740993,"l":[1,2]}`, `{"n":9007199254740992,"l":[1,3]}`, "", "their payloads differ in /l/1, /n"},
		{`{"a/b":1,"m~":{"x":1}}`, `{"m~":{"x":null}}`, "", "their payloads differ in /a~1b, /m~0/x"},
		{`{"l":[1]}`, `{"l":[1,2]}`, "", "their payloads differ in /l"},
		{`{"a":1}`, ``, "", "their payloads differ, and where can't be seen here"},
		{`1`, `2`, "", "their payloads differ"},
		{`{}`, `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1}`, "", "their payloads differ in /a, /b, /c, /d, /e, /f, /g, /h, and 2 more places"},
	} {
		call := func(key, payload string) Facts {
			rec := ended(completed)
			rec.ID = store.ID{Operation: "pay", Key: key}
			rec.Fingerprint = store.FingerprintOf(store.SchemeRaw, []byte(cmp.Or(c.same, key)))
			return Facts{Record: &rec, Payload: []byte(payload), Known: true}
		}
		if got := Together("9911", []Facts{call("k1", c.a), call("k2", c.b)}, false); !strings.HasSuffix(got, "; "+c.says) {
			t.Errorf("%s, not %q", got, c.says)
		}
	}
}

// A record that was made anew says so in its list, and once for all where nobody knows.
func TestTogetherTellsOfPurges(t *testing.T) {
	rec := ended(completed)
	rec.ID, rec.StartedAt = store.ID{Operation: "pay", Key: "k"}, noon
	f := Facts{Record: &rec, Now: noon, Known: true, Before: []Life{{Counts: Counts{1, 1, 0, 0}, PurgedAt: noon}}}
	if got, want := Together("k", []Facts{f}, false), "k: 1 call, executed twice: k at 12:00:00 (and begun once before its record was made anew)"; got != want {
		t.Error(got)
	}
	said := Of(&f)
	if got, want := Together("k", []Facts{{Record: &rec, Now: noon, Said: &said}}, false), Together("k", []Facts{f}, false); got != want {
		t.Errorf("of the service's verdict it makes %q, not %q", got, want)
	}
	if got := Together("k", []Facts{{Record: &rec, Now: noon}}, false); !strings.HasSuffix(got, "; whether earlier records were purged is not known here") {
		t.Error(got)
	}
}
