package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// record is a call that failed.
func record() *semel.Record {
	failure := &store.Failure{Code: "c", Message: "m"}
	settled := &store.Settled{By: store.ByOperator, Who: "olga", Reason: "seen", At: 4000}
	return &semel.Record{
		ID: semel.ID{Tenant: "t", Principal: "p", Operation: "op", Key: "k"}, Revision: store.Revision{1, 2, 3}, State: semel.Failed,
		Disposition: semel.DispositionFailed, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte("x")), Principal: "who", BoundTo: "b", Door: "api", Sequence: 9, Payload: []byte("{}"),
		Fence: 7, Origin: 5, Attempt: 2, Holder: "h", Policy: store.Policy{Lease: 1, Window: 2, Remember: 4, MaxResult: 3, Retry: true},
		CreatedAt: 1000, UpdatedAt: 2000, StartedAt: 3000, EndedAt: 4000, ExpiresAt: 5000, NextAt: 6000,
		Result: semel.Result{Data: []byte(`{"a":"<b>"}`)}, Failure: failure, Settled: settled,
		Effects:      []store.EffectRecord{{Name: "e", Key: "ek", State: store.EffectConfirmed, Fence: 5, Result: semel.Result{Data: []byte{0xff}}, StartedAt: 1000, SettledAt: 2000, Settled: settled}},
		Earlier:      []store.AttemptRecord{{Number: 1, Fence: 5, Holder: "g", Principal: "p1", Disposition: semel.DispositionAborted, Failure: failure, Settled: settled, StartedAt: 1000, EndedAt: 2000}},
		Attributes:   store.Attributes{"n": "v"},
		Confirmation: &store.Confirmation{Tokens: []store.ConfirmationToken{{Digest: store.Digest{9}, ExpiresAt: 1000}}, Tries: 1, Principal: "p"},
		Outbox:       []semel.Message{{ID: "msg_1", Name: "n", Destination: "d", Payload: []byte("secret payload"), State: store.MessageParked, Tries: 3, CreatedAt: 1000, SettledAt: 2000, Failure: failure}},
		Compensation: &store.Compensation{Operation: "undo", Principal: "by", Key: "undo-k", Shared: true, State: store.CompensationFailed, Reason: "r", StartedAt: 1000, SettledAt: 2000, NextAt: 3000, Failure: failure},
	}
}

// records have together a value for every member, shown or not.
func records() []*semel.Record {
	held := record()
	held.State, held.Disposition, held.EndedAt, held.ExpiresAt, held.Settled, held.Compensation = semel.Processing, 0, 0, 0, nil, nil
	held.Held, held.HeldReason, held.LeaseUntil, held.RefusedUntil = true, "nobody knows", 7000, 8000
	held.Failure, held.Result = nil, semel.Result{}
	held.Policy.Ledger, held.Policy.Archive, held.Policy.Reconcile = true, true, true
	held.Effects[0].Result, held.Effects[0].Failure = semel.Result{Tombstone: true}, &store.Failure{Code: "c", Message: "m"}
	held.Confirmation.ConfirmedAt = 9000
	sent := record()
	sent.State, sent.Disposition, sent.Failure, sent.Result = semel.Completed, semel.DispositionCompleted, nil, semel.Result{Tombstone: true}
	m := &sent.Outbox[0]
	m.ContentType, m.Order, m.State, m.NextAt, m.SettledAt = "text/plain", "o", store.MessagePending, 5000, 0
	return []*semel.Record{record(), held, sent, store.NewMark(record().ID, store.Mark{Begun: 1, Newest: 2}, 7, 1000)}
}

// filled adds the paths of the members of v that have a value, and all adds all paths.
func filled(v reflect.Value, path string, has, all map[string]bool) {
	all[path] = true
	if !v.IsZero() {
		has[path] = true
	}
	typ := v.Type()
	switch typ.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v = reflect.New(typ.Elem())
		}
		filled(v.Elem(), path, has, all)
	case reflect.Slice:
		if typ.Elem().Kind() != reflect.Struct {
			return
		}
		filled(reflect.Zero(typ.Elem()), path, map[string]bool{}, all)
		for i := range v.Len() {
			filled(v.Index(i), path, has, all)
		}
	case reflect.Struct:
		for i := range typ.NumField() {
			if f := typ.Field(i); f.IsExported() {
				filled(v.Field(i), path+"."+f.Name, has, all)
			}
		}
	}
}

// TestEveryMemberIsTested: a member that no record of these tests has could be lost on the way
// unseen.
//
// Nobody but the store has HeldFrom, of records that are processing, and the attributes
// of a stored result are the record's.
func TestEveryMemberIsTested(t *testing.T) {
	has, all := map[string]bool{}, map[string]bool{}
	for _, rec := range records() {
		filled(reflect.ValueOf(rec).Elem(), "Record", has, all)
	}
	for path := range all {
		if !has[path] && path != "Record.HeldFrom" && !strings.HasSuffix(path, ".Result.Attributes") {
			t.Errorf("no record here has %s", path)
		}
	}
	if len(all) < 80 {
		t.Errorf("a record has %d members", len(all))
	}
}

func TestEveryMemberIsReadBack(t *testing.T) {
	for _, rec := range records() {
		text := encoded(t, KeptOf(rec))
		var kept Kept
		if err := json.Unmarshal(text, &kept); err != nil {
			t.Fatal(err)
		}
		if got, err := kept.Value(); err != nil || !reflect.DeepEqual(got, rec) {
			t.Errorf("read as %+v, %v\nnot %+v\n%s", got, err, rec, text)
		}
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := NewEncoder(&b).Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	text := encoded(t, KeptOf(record()))
	var kept Kept
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	if got, err := kept.Value(); err != nil || !reflect.DeepEqual(got, record()) {
		t.Errorf("read as %+v, %v\n%s", got, err, text)
	}
	shown := encoded(t, RecordOf(record()))
	for _, hidden := range []string{record().Revision.String(), "payload_base64", "c2VjcmV0", "tokens", "policy", "origin", "next_at"} {
		if !strings.Contains(string(text), hidden) && hidden != "payload_base64" || strings.Contains(string(shown), hidden) {
			t.Errorf("%q is to be in what is kept, and not in what is shown:\n%s\n%s", hidden, text, shown)
		}
	}
	var seen Record
	if err := json.Unmarshal(shown, &seen); err != nil {
		t.Fatal(err)
	}
	want := record()
	want.Revision, want.Origin, want.Policy, want.NextAt, want.Payload = store.Revision{}, 0, store.Policy{}, 0, nil
	want.Confirmation.Tokens, want.Outbox[0].Payload = nil, nil
	want.Compensation.Principal, want.Compensation.Shared, want.Compensation.NextAt = "", false, 0
	if got, err := seen.Value(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("seen as %+v, %v; want %+v", got, err, want)
	}
}

func TestWhatIsNoRecordIsRefused(t *testing.T) {
	bad := "?"
	for name, spoil := range map[string]func(v *Kept){
		"operation":    func(v *Kept) { v.Operation = "" },
		"key":          func(v *Kept) { v.Key = "" },
		"status":       func(v *Kept) { v.Status = 0 },
		"base64":       func(v *Kept) { v.Bytes = &bad },
		"is not":       func(v *Kept) { v.Effects[0].Bytes = &bad },
		"compensation": func(v *Kept) { v.Compensation.Record = "x" },
		"payloads":     func(v *Kept) { v.Payloads = nil },
	} {
		v := KeptOf(record())
		spoil(&v)
		if rec, err := v.Value(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without a right %s it is %+v, %v", name, rec, err)
		}
	}
}

// TestTheScopeOfACallHasANameOfItsOwn, and none has the sign that joins them in the identity.
func TestTheScopeOfACallHasANameOfItsOwn(t *testing.T) {
	clause.Proves(t, "CORE-ID.3")
	rec := record()
	rec.ID.Principal = "shop" + store.ScopeMark + "session=s1"
	var members struct{ Tenant, Principal, Scope string }
	if err := json.Unmarshal(encoded(t, RecordOf(rec)), &members); err != nil {
		t.Fatal(err)
	}
	if members.Tenant != rec.ID.Tenant || members.Principal != "shop" || members.Scope != "session=s1" {
		t.Errorf("%+v", members)
	}
	v := RecordOf(rec)
	for _, id := range []string{v.ID, ""} { // a program may not know the record's name
		v.ID = id
		if back, err := v.Value(); err != nil || back.ID != rec.ID {
			t.Errorf("named %q it is read back as %+v, %v, want %+v", id, back, err, rec.ID)
		}
	}
	rec.ID.Principal = store.ScopeMark + "digest" + store.ScopeMark + "digest" // a refusal that is kept apart
	if text := string(encoded(t, RecordOf(rec))); strings.Contains(text, store.ScopeMark) {
		t.Errorf("people see the sign: %s", text)
	}
	rec.ID.Principal = "shop"
	if text := string(encoded(t, RecordOf(rec))); strings.Contains(text, `"scope"`) {
		t.Errorf("a call without a scope has one: %s", text)
	}
}
