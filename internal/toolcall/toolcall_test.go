package toolcall

import "testing"

// TestRead: the key may be in any of its places, isn't an argument any more, and must be one.
func TestRead(t *testing.T) {
	for _, params := range []string{
		`{"name":"pay","arguments":{"a":1},"_meta":{"idempotency-key":"k"}}`, `{"name":"pay","arguments":{"a":1,"idempotency_key":"k"}}`,
		`{"name":"pay","arguments":{"a":1,"token":"k"},"idempotencyKey":"k"}`,
	} {
		c, err := Read([]byte(params), "token")
		if err != nil || c.Name != "pay" || c.Key != "k" || string(c.Arguments) != `{"a":1}` {
			t.Errorf("%s: %+v, %v", params, c, err)
		}
		if c.Found("k", "elsewhere") != nil || c.Found("j", "elsewhere") == nil {
			t.Errorf("%s: another key", params)
		}
	}
	for _, params := range []string{`[]`, `{}`, `{"name":"pay","arguments":[]}`, `{"name":"pay","idempotencyKey":""}`, `{"name":"pay","Arguments":{}}`, `{"name":"pay","requestState":1}`} {
		if _, err := Read([]byte(params), ""); err == nil {
			t.Errorf("%s was read", params)
		}
	}
}
