package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// record has a value for every member, shown or not.
func record() *semel.Record {
	failure := &store.Failure{Code: "c", Message: "m"}
	settled := &store.Settled{By: store.ByOperator, Who: "olga", Reason: "seen", At: 4000}
	return &semel.Record{
		ID: semel.ID{Tenant: "t", Principal: "p", Operation: "op", Key: "k"}, Revision: store.Revision{1, 2, 3}, State: semel.Failed,
		Disposition: semel.DispositionFailed, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte("x")), Principal: "who", BoundTo: "b", Door: "api", Sequence: 9, Payload: []byte("{}"),
		Fence: 7, Origin: 5, Attempt: 2, Holder: "h", Policy: store.Policy{Lease: 1, Window: 2, MaxResult: 3, Retry: true},
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
