package codec

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/store"
)

// Recorded files are what programs wrote. They are added, and never written anew: package
// archtest holds the digest of each.
//
//	testdata/format-*          a record with something in every field
//	testdata/records/COMMIT/*  a record in each situation that the engine of a commit could
//	                           bring about, and what is to be read in SITUATIONS
//	testdata/records/format-2  those that have what format 2 added
//	testdata/records/remember  those of calls that are remembered beyond their window
const (
	recordedDir = "testdata/records"
	situations  = "SITUATIONS"
)

var add = flag.Bool("add", false, "write the recorded files that are missing")

// recorded reads a recorded file. With -add, it is made of what is given if there is none.
func recorded(t *testing.T, name string, fresh []byte) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if os.IsNotExist(err) && *add && fresh != nil {
		err = os.WriteFile(name, fresh, 0o644)
		b = fresh
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRecordedWhole reads a record that has something in every field.
func TestRecordedWhole(t *testing.T) {
	whole := func(change func(*store.Record)) *store.Record {
		rec := goldenRecord()
		change(rec)
		return rec
	}
	for name, want := range map[string]*store.Record{
		// In the first form of format 1 a reason says that a record is held, if it runs. This
		// one has ended.
		"format-1-no-flag": whole(func(r *store.Record) { r.Held = false }),
		"format-1":         goldenRecord(),
		"format-2":         whole(func(r *store.Record) { r.Mark, r.RefusedUntil = &store.Mark{Begun: 5, Newest: 7}, r.ExpiresAt }),
	} {
		t.Run(name, func(t *testing.T) {
			written := encode(t, want)
			b := recorded(t, filepath.Join("testdata", name), written)
			got, err := Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			if string(written) != string(b) {
				t.Error("Append writes something else: a change of the format needs a new number")
			}
		})
	}
}

// TestRecorded reads the record of each situation, and writes it again: the bytes are the same,
// but for a flag of held records that the first programs didn't have.
func TestRecorded(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(recordedDir, "*"))
	if err != nil || len(dirs) < 3 {
		t.Fatal(dirs, err)
	}
	made := map[string]map[string]*store.Record{"format-2": format2(), "remember": remembered()}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			fresh := made[filepath.Base(dir)]
			names := slices.Sorted(maps.Keys(fresh))
			if fresh == nil {
				names = files(t, dir)
			}
			var told strings.Builder
			for _, name := range names {
				var now []byte
				if rec := fresh[name]; rec != nil {
					now = encode(t, rec)
				}
				b := recorded(t, filepath.Join(dir, name), now)
				rec, err := Decode(b)
				if err != nil {
					t.Fatal(name, err)
				}
				fmt.Fprintf(&told, "%s: %s\n", name, tell(rec))
				if held := strings.Contains(name, "held"); rec.Held != held {
					t.Errorf("%s is read as held: %v", name, rec.Held)
				}
				again := encode(t, rec)
				if filepath.Base(dir) == "fede386" && rec.Held {
					rec.Held = false // as the program wrote that had no flag
					again = encode(t, rec)
				}
				if string(again) != string(b) {
					t.Errorf("%s is written as other bytes than it was read from", name)
				}
				if now != nil && string(now) != string(b) {
					t.Errorf("Append writes %s in another way: a change of the format needs a new number", name)
				}
			}
			if want := recorded(t, filepath.Join(dir, situations), []byte(told.String())); told.String() != string(want) {
				t.Errorf("got\n%swant\n%s", &told, want)
			}
			if left := slices.DeleteFunc(files(t, dir), func(name string) bool { return slices.Contains(names, name) }); len(left) > 0 {
				t.Errorf("nothing reads %v", left)
			}
		})
	}
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != situations {
			names = append(names, e.Name())
		}
	}
	return names
}

// format2 are records that only format 2 can hold.
func format2() map[string]*store.Record {
	at := store.InstantOf(time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC))
	base := func(state store.State, ended store.Disposition) store.Record {
		return store.Record{
			ID:       store.ID{Tenant: "acme", Principal: "alice", Operation: "sessions.update", Key: "sess_1"},
			Revision: store.Revision{15: 1}, Fence: 1_795_694_400_000_000, Origin: 1_795_694_400_000_000,
			State: state, Disposition: ended, CreatedAt: at, UpdatedAt: at, ExpiresAt: at.Add(24 * time.Hour), NextAt: at.Add(24 * time.Hour),
		}
	}
	mark := func(begun, newest uint64) *store.Record {
		rec := base(store.Completed, store.DispositionCompleted)
		rec.Mark = &store.Mark{Begun: begun, Newest: newest}
		return &rec
	}
	refused := base(store.Failed, store.DispositionAborted)
	refused.Failure, refused.RefusedUntil = &store.Failure{Code: "rejected"}, at.Add(time.Hour)
	held := base(store.Processing, 0)
	held.ExpiresAt, held.NextAt = 0, 0
	held.Held, held.HeldReason, held.HeldFrom, held.RefusedUntil = true, "the provider did not answer", store.Revision{15: 2}, at.Add(time.Hour)
	number := base(store.Completed, store.DispositionCompleted)
	number.ID, number.Sequence, number.RefusedUntil = number.ID.Numbered(3), 3, at.Add(time.Hour)
	return map[string]*store.Record{
		"mark":              mark(3, 3),
		"mark-given-back":   mark(2, 3),
		"mark-of-none":      mark(0, 1),
		"refused-to-others": &refused,
		"held-and-refused":  &held,
		"number":            &number,
	}
}

// remembered are records of calls that are remembered beyond their window: one within it, and what
// is left afterwards.
func remembered() map[string]*store.Record {
	at := store.InstantOf(time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC))
	base := func(state store.State, ended store.Disposition) *store.Record {
		return &store.Record{
			ID:       store.ID{Tenant: "acme", Principal: "alice", Operation: "refund", Key: "order-1"},
			Revision: store.Revision{15: 3}, Fence: 1_795_780_800_000_000, Origin: 1_795_780_800_000_000, Attempt: 1, Holder: "node-1",
			State: state, Disposition: ended, CreatedAt: at, UpdatedAt: at, EndedAt: at, ExpiresAt: at.Add(90 * 24 * time.Hour), NextAt: at.Add(24 * time.Hour),
			Policy: store.Policy{Lease: 30 * time.Second, Window: 24 * time.Hour, Remember: 90 * 24 * time.Hour, MaxResult: 1 << 18},
		}
	}
	answered := base(store.Completed, store.DispositionCompleted)
	answered.Result, answered.Payload = store.Result{Data: []byte(`{"id":"re_1"}`)}, []byte(`{"amount":4200}`)
	named := base(store.Completed, store.DispositionCompleted)
	named.Result, named.UpdatedAt, named.NextAt = store.Result{Tombstone: true}, answered.NextAt, named.ExpiresAt
	named.Attributes = store.Attributes{"order": "order-1"}
	named.Effects = []store.EffectRecord{{Name: "refund", Key: "k", State: store.EffectConfirmed, Result: store.Result{Tombstone: true}}}
	declined := base(store.Failed, store.DispositionRejected)
	declined.Result, declined.UpdatedAt, declined.NextAt = named.Result, named.UpdatedAt, declined.ExpiresAt
	declined.Failure = &store.Failure{Code: "declined"}
	return map[string]*store.Record{"answered": answered, "only-named": named, "only-named-rejected": declined}
}

// tell says in one line what a record is.
func tell(r *store.Record) string {
	words := []string{r.State.String(), r.Disposition.String(), fmt.Sprintf("attempt %d", r.Attempt)}
	say := func(is bool, format string, args ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	say(r.Held, "held because %q", r.HeldReason)
	say(!r.HeldFrom.IsZero(), "from a version")
	say(r.Result.Data != nil, "result %q", r.Result.Data)
	say(r.Result.Tombstone, "tombstone")
	if r.Failure != nil {
		say(true, "failure %s", r.Failure.Code)
	}
	if r.Settled != nil {
		say(true, "settled by %s %q: %s", r.Settled.By, r.Settled.Who, r.Settled.Reason)
	}
	for _, e := range r.Effects {
		say(true, "effect %s %s %q settled %v", e.Name, e.State, e.Result.Data, e.Settled != nil)
	}
	for _, a := range r.Earlier {
		say(true, "earlier %d %s", a.Number, a.Disposition)
	}
	for _, m := range r.Outbox {
		say(true, "message %s to %s %s tries %d order %q", m.Name, m.Destination, m.State, m.Tries, m.Order)
	}
	if c := r.Confirmation; c != nil {
		say(true, "confirmation %d tokens, %d tries, by %q, done %v", len(c.Tokens), c.Tries, c.Principal, c.ConfirmedAt != 0)
	}
	if c := r.Compensation; c != nil {
		say(true, "compensation %s %s: %s", c.Operation, c.State, c.Reason)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Attributes)) {
		say(true, "%s=%s", name, r.Attributes[name])
	}
	say(r.Payload != nil, "payload %q", r.Payload)
	say(r.BoundTo != "", "bound")
	say(r.Door != "", "door %s", r.Door)
	say(r.Sequence != 0, "number %d", r.Sequence)
	if r.Mark != nil {
		say(true, "mark %d %d", r.Mark.Begun, r.Mark.Newest)
	}
	say(r.RefusedUntil != 0, "refused to others")
	p := r.Policy
	say(p != store.Policy{}, "policy retry=%v ledger=%v archive=%v reconcile=%v %v %v %d", p.Retry, p.Ledger, p.Archive, p.Reconcile, p.Lease, p.Window, p.MaxResult)
	say(p.Remember != 0, "remember %v, only named %v", p.Remember, r.OnlyNamed())
	say(r.LeaseUntil != 0, "lease")
	say(r.NextAt != 0, "next")
	say(r.ExpiresAt != 0, "expires")
	return strings.Join(words, ", ")
}
