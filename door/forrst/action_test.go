package forrst

import (
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/store"
)

// Without a key, the same request sent again would be another call, so nobody who doesn't know
// what happened is told to wait.
func TestActionWithoutAKey(t *testing.T) {
	keyed := &Request{idempotency: &idempotency{key: "k"}}
	for _, c := range []struct {
		r    *Request
		a    answer
		want store.Action
	}{
		{keyed, answer{code: semel.CodeUnknown, status: 503, effect: door.EffectUnknown}, store.ActionWait},
		{&Request{}, answer{code: semel.CodeUnknown, status: 503, effect: door.EffectUnknown}, store.ActionVerify},
		{&Request{}, answer{code: semel.CodeStoreUnavailable, status: 503, effect: door.EffectNone}, store.ActionWait},
		{nil, answer{code: semel.Code(ParseError), status: 400}, store.ActionFixRequest},
		{&Request{}, answer{status: 503}, ""},
	} {
		if got := c.a.action(c.r); got != c.want {
			t.Errorf("%+v: %q, want %q", c.a, got, c.want)
		}
	}
}
