package activitypub_test

import (
	"testing"

	"github.com/semelhq/semel/door/activitypub"
)

// TestKeysOfInstances: the host of a key comes without a port.
func TestKeysOfInstances(t *testing.T) {
	named := activitypub.Policies{{Host: "proto.example:8443"}, {Host: "[::1]:8443", Unsigned: true}, {Host: "*.ok.example"}, {Host: "*", Refuse: true}}
	refused := activitypub.Policies{{Host: "bad.example", Refuse: true}, {Host: "half.example:8443", Refuse: true}, {Host: "*.bad.example", Refuse: true}}
	for _, test := range []struct {
		policies activitypub.Policies
		host     string
		takes    bool
	}{
		{nil, "any.example", true},
		{named, "proto.example", true},
		{named, "::1", true},
		{named, "a.ok.example", true},
		{named, "ok.example", false},
		{named, "any.example", false},
		{refused, "bad.example", false},
		{refused, "a.bad.example", false},
		{refused, "half.example", true},
		{refused, "any.example", true},
	} {
		if got := test.policies.Accepts(test.host); got != test.takes {
			t.Errorf("%+v take from %s: %t", test.policies, test.host, got)
		}
	}
}

// TestNobodyHidesBehindAnActivityWithoutAnActor: who signed it is its actor.
func TestNobodyHidesBehindAnActivityWithoutAnActor(t *testing.T) {
	w := newWorld(t, func(o *activitypub.Options) {
		o.Verifier, o.Policies = signedBy{}, activitypub.Policies{{Host: "bad.example", Refuse: true}}
	})
	const body = `{"type":"Like","id":"urn:uuid:1","object":"x"}`
	w.want(403, "Forbidden", body, "Signed-By", "https://bad.example/users/mallory")
	w.want(202, "queued", body, "Signed-By", bob)
}

// TestSpellingsOfAnInstance: a host and a port have many.
func TestSpellingsOfAnInstance(t *testing.T) {
	w := newWorld(t, func(o *activitypub.Options) {
		o.Verifier, o.Policies = signedBy{}, activitypub.Policies{{Host: "127.0.0.1:21873", Refuse: true}, {Host: "bad.example", Refuse: true}}
	})
	for _, origin := range []string{
		"http://127.0.0.1:21873", "http://127.0.0.1:021873", "http://127.0.0.1:00000021873", "https://bad.example.", "https://BAD.example:443",
		"https://bad.example:0443", "http://bad.example:080", "https://bad.example:",
	} {
		actor := origin + "/u"
		w.want(403, "Forbidden", `{"type":"Like","id":"`+origin+`/1","actor":"`+actor+`","object":"x"}`, "Signed-By", actor)
	}
}
