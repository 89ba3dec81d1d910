package verdict

import (
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel/store"
)

// What a retry gets is said in every state, and never more than is known.
func TestRetry(t *testing.T) {
	kept := func(rec store.Record) store.Record { rec.ExpiresAt = noon.Add(time.Hour); return rec }
	held := with(running(ended(0)), func(r *store.Record) { r.Held = true })
	silent := with(running(ended(0)), func(r *store.Record) { r.LeaseUntil = noon - 1 })
	old := func(r *store.Record) { r.UpdatedAt, r.Policy.Window = noon-1, time.Hour }
	for name, c := range map[string]struct {
		f    Facts
		want string
	}{
		"completed":             {Facts{Record: new(kept(ended(completed)))}, "gets the recorded answer, until 2026-11-26 13:00:00"},
		"settled":               {Facts{Record: new(settled(completed, olga))}, "is told how it was settled, without an answer, because none was given"},
		"settled as refused":    {Facts{Record: new(settled(rejected, olga))}, "is told how it was settled, without an answer, because none was given"},
		"settled with a reason": {Facts{Record: new(with(settled(rejected, olga), func(r *store.Record) { r.Failure = &store.Failure{Code: "declined"} }))}, "gets the recorded refusal"},
		"settled with a result": {Facts{Record: new(with(settled(completed, olga), func(r *store.Record) { r.Result.Data = []byte("1") }))}, "gets the recorded answer"},
		"without its answer":    {Facts{Record: new(with(kept(ended(completed)), func(r *store.Record) { r.Result.Tombstone = true }))}, "is told how it ended, without the answer, which isn't kept, until 2026-11-26 13:00:00"},
		"refused at length":     {Facts{Record: new(with(ended(rejected), func(r *store.Record) { r.Result.Tombstone = true }))}, "is told how it ended, without the answer, which isn't kept"},
		"failed at length":      {Facts{Record: new(with(ended(failed), func(r *store.Record) { r.Result.Tombstone = true })), OnFailure: "replay"}, "is told how it ended, without the answer, which isn't kept"},
		"parked":                {Facts{Record: new(event1(store.MessageParked, 1))}, "gets the recorded answer"},
		"rejected":              {Facts{Record: new(ended(rejected))}, "gets the recorded refusal"},
		"failed":                {Facts{Record: new(ended(failed)), OnFailure: "replay"}, "gets the recorded failure"},
		"failed, to be run":     {Facts{Record: new(ended(failed)), OnFailure: "retry"}, "runs it again"},
		"failed somewhere":      {Facts{Record: new(ended(failed))}, "gets the recorded failure, or runs it again: on_failure of the operation says which"},
		"aborted":               {Facts{Record: new(ended(aborted))}, "runs it again"},
		"released":              {Facts{Record: new(settled(abandoned, olga))}, "runs it again"},
		"aborted, restored":     {Facts{Record: new(with(ended(aborted), old)), Epoch: noon - 1 + 1}, "is refused as held: the store was restored from a backup, and nobody knows what was done since"},
		"running":               {Facts{Record: new(running(ended(0)))}, "is refused as in_flight, or waits for the answer"},
		"silent":                {Facts{Record: &silent}, "is refused as held: nobody knows what its holder did"},
		"silent, to be retried": {Facts{Record: new(with(silent, func(r *store.Record) { r.Policy.Retry = true }))}, "runs it again"},
		"silent in an effect": {Facts{Record: new(with(silent, func(r *store.Record) {
			r.Policy.Retry, r.Effects = true, []store.EffectRecord{{State: store.EffectStarted}}
		}))}, "is refused as held: nobody knows what its holder did"},
		"held":                            {Facts{Record: &held}, "is refused as held, until somebody settles it"},
		"unconfirmed":                     {Facts{Record: new(with(ended(aborted), func(r *store.Record) { r.Confirmation = &store.Confirmation{} }))}, "is asked for the confirmation, or brings it"},
		"confirmed":                       {Facts{Record: new(confirmed(noon + 1))}, "runs it, without a confirmation of its own"},
		"expired":                         {Facts{Record: new(with(ended(completed), func(r *store.Record) { r.ExpiresAt = noon }))}, "is a new call: the outcome was kept until 2026-11-26 12:00:00"},
		"remembered":                      {Facts{Record: new(with(ended(completed), remembered))}, "is told how it ended, without the answer, until 2026-11-27 10:00:00"},
		"failed and remembered":           {Facts{Record: new(with(ended(failed), remembered)), OnFailure: "retry"}, "runs it again"},
		"failed and remembered somewhere": {Facts{Record: new(with(ended(failed), remembered))}, "is told that it failed, without the answer, or runs it again: on_failure of the operation says which"},
		"remembered long ago": {Facts{Record: new(with(ended(completed), func(r *store.Record) {
			remembered(r)
			r.ExpiresAt = noon
		}))}, "is a new call: this one was remembered until 2026-11-26 12:00:00"},
		"mark": {Facts{Record: &store.Record{Mark: &store.Mark{}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.f.Now = noon
			if got := Of(&c.f).Retry; got != c.want {
				t.Errorf("a retry %s, not %s", got, c.want)
			}
		})
	}
}

// Refused payloads are compared with the call's own, as far as they are kept.
func TestCompare(t *testing.T) {
	var v Verdict
	v.Compare([]byte(`{"amount":1,"to":"a"}`), [][]byte{[]byte(`{"amount":2,"to":"a"}`), nil, []byte(`{"amount":1,"to":"b"}`)})
	if !slices.Equal(v.Differ, []string{"/amount", "/to"}) {
		t.Error(v.Differ)
	}
	if v.Compare(nil, [][]byte{[]byte(`{}`)}); v.Differ != nil {
		t.Error(v.Differ)
	}
}
