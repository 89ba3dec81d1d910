package evidence

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/semelhq/semel/store"
)

// The bytes of leaves and openings are hashed and signed, so what was recorded once is
// written for ever.
func TestLeavesAndOpeningsHaveTheirRecordedForm(t *testing.T) {
	const strange = "a\"\\/<&>\u2028\u2029\b\f\n\r\t\x01\x7f\u00e9\U0001f600\xff\xed\xa0\x80"
	leaf := Artifact{
		"ev_1", TypeStarted, "c0", time.Unix(1_700_000_000, 120_000_000).UTC(),
		Payload{
			Attempt: 2, By: "operator", Change: store.ChangeClaimed, Content: "c1_0", Decision: strange, Disposition: "failed", Durability: "d", Executed: executed, Fence: "9007199254740993",
			Fingerprint: "f", KeptUntil: time.Unix(1_700_000_100, 0).UTC(), OutcomeRef: "out_1", Presented: "p", Reason: strange, Record: "rec_1", State: "s",
		},
		"tn_1", 1,
	}
	opening := Opening{"command", "correlation", "code", "1:ff", strange, "item", "operation", "aa", "by", "pc", "pf", "pr", strange, "why", "request", "salt", "settled", "tenant"}
	for _, test := range []struct{ got, want string }{
		{string(canonical(&leaf)), "{\"artifact_id\":\"ev_1\",\"artifact_type\":\"execution.started\",\"commitment\":\"c0\",\"emitted_at\":\"2023-11-14T22:13:20.12Z\",\"payload\":{\"attempt\":2,\"by\":\"operator\",\"change\":\"claimed\",\"content\":\"c1_0\",\"decision\":\"a\\\"\\\\/<&>\u2028\u2029\\b\\f\\n\\r\\t\\u0001\x7fé😀����\",\"disposition\":\"failed\",\"durability\":\"d\",\"executed\":true,\"fence\":\"9007199254740993\",\"fingerprint\":\"f\",\"kept_until\":\"2023-11-14T22:15:00Z\",\"outcome_ref\":\"out_1\",\"presented_fingerprint\":\"p\",\"reason\":\"a\\\"\\\\/<&>\u2028\u2029\\b\\f\\n\\r\\t\\u0001\x7fé😀����\",\"record_ref\":\"rec_1\",\"state\":\"s\"},\"tenant_id\":\"tn_1\",\"v\":1}"},
		{string(canonical(&opening)), "{\"command_id\":\"command\",\"correlation_id\":\"correlation\",\"failure_code\":\"code\",\"fingerprint\":\"1:ff\",\"idempotency_key\":\"a\\\"\\\\/<&>\u2028\u2029\\b\\f\\n\\r\\t\\u0001\x7fé😀����\",\"item\":\"item\",\"operation\":\"operation\",\"outcome_sha256\":\"aa\",\"presented_by\":\"by\",\"presented_command_id\":\"pc\",\"presented_fingerprint\":\"pf\",\"presented_request_id\":\"pr\",\"principal\":\"a\\\"\\\\/<&>\u2028\u2029\\b\\f\\n\\r\\t\\u0001\x7fé😀����\",\"reason\":\"why\",\"request_id\":\"request\",\"salt\":\"salt\",\"settled_by\":\"settled\",\"tenant_id\":\"tenant\"}"},
		{string(canonical(&Opening{})), "{\"idempotency_key\":\"\",\"operation\":\"\",\"principal\":\"\",\"salt\":\"\",\"tenant_id\":\"\"}"},
	} {
		if test.got != test.want {
			t.Errorf("it is %s, not %s", test.got, test.want)
		}
	}
	t.Run("whatever is in them", func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		text := func() string {
			if random.IntN(3) == 0 {
				return ""
			}
			b := make([]byte, random.IntN(20))
			for i := range b {
				b[i] = byte(random.IntN(256))
			}
			return string(b)
		}
		h := sha256.New()
		for range 20_000 {
			p := Payload{
				Attempt: random.IntN(3), By: text(), Change: store.Change(text()), Content: text(), Decision: text(), Disposition: text(), Durability: store.Level(text()),
				Fence: text(), Fingerprint: text(), OutcomeRef: text(), Presented: text(), Reason: text(), Record: text(), State: text(),
			}
			if random.IntN(2) == 0 {
				p.Executed = []*bool{executed, notExecuted}[random.IntN(2)]
			}
			if random.IntN(2) == 0 {
				p.KeptUntil = store.Instant(random.Int64N(4e18)).Time()
			}
			leaf := Artifact{"ev" + text(), Type("t" + text()), "c" + text(), store.Instant(random.Int64N(4e18)).Time(), p, "tn" + text(), 1}
			opening := Opening{text(), text(), text(), text(), text(), text(), text(), text(), text(), text(), text(), text(), text(), text(), text(), text(), text(), text()}
			h.Write(canonical(&leaf))
			h.Write(canonical(&opening))
		}
		const want = "31f295cdecb1537bec74c5a84c31f0b3bf96c276f8602147b388d38436190ed1"
		if got := hex.EncodeToString(h.Sum(nil)); got != want {
			t.Errorf("the digest of all is %s, not %s", got, want)
		}
	})
}
