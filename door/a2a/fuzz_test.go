package a2a_test

import (
	"testing"

	once "github.com/semelhq/semel/door/a2a"
)

// FuzzRead: whatever a stranger sends, a message that is guarded has an id and a fingerprint,
// and has the same again.
func FuzzRead(f *testing.F) {
	for _, b := range all {
		_, raw := b.body("m-1", "T1", "pay", false)
		f.Add([]byte(raw), b == rpc || b == oldRPC)
	}
	f.Add([]byte(`[{"jsonrpc":"2.0"}]`), true)
	f.Add([]byte(`{"message":{"messageId":"a","message_id":"b"}}`), false)
	f.Add([]byte(`{"message":{"messageId":"a","metadata":{"traceparent":"x"}}}`), false)
	f.Fuzz(func(t *testing.T, body []byte, rpc bool) {
		id, print, guarded := once.Read(body, rpc)
		if guarded && (id == "" || print.IsZero()) {
			t.Errorf("%q: %q %s", body, id, print)
		}
		if _, again, _ := once.Read(body, rpc); again != print {
			t.Errorf("%q: %s, and then %s", body, print, again)
		}
	})
}
