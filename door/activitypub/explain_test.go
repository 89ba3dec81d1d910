package activitypub_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/semelhq/semel/door/activitypub"
)

// TestExplain compares what is explained with what happens.
func TestExplain(t *testing.T) {
	opts := activitypub.Options{
		Actors: "https://here.example/actors/{actor}", Shared: "/inbox", Types: []string{"Create", "Like", "Accept", "Reject", "Add", "Offer"},
		Exists:   func(_ context.Context, actor string) (bool, error) { return actor == "alice" || actor == "carol", nil },
		Verifier: signedBy{}, Policies: activitypub.Policies{{Host: "bad.example", Refuse: true}, {Host: "proto.example", Unsigned: true}},
	}
	w := newWorld(t, func(o *activitypub.Options) {
		o.Verifier, o.Policies, o.Types = opts.Verifier, opts.Policies, opts.Types
	})
	const (
		like     = `{"type":"Like","id":"https://there.example/a/1","actor":"https://there.example/users/bob","object":"x"}`
		nameless = `{"type":"Like","id":"urn:uuid:2","object":"x"}`
		unsigned = `{"type":"Like","id":"https://proto.example/3","actor":"https://proto.example/p","object":"x"}`
		both     = `{"type":"Like","id":"https://there.example/a/4","actor":"https://there.example/users/bob","object":"x","to":["https://here.example/actors/carol","https://here.example/actors/alice"]}`
		foreign  = `{"type":"Like","id":"https://else.example/5","actor":"https://there.example/users/bob","object":"x"}`
		block    = `{"type":"Block","id":"https://there.example/a/6","actor":"https://there.example/users/bob","object":"x"}`
	)
	for _, test := range []struct {
		path, body, signer string
		inboxes            []string
		needed             bool
	}{
		{"/actors/alice/inbox/", like, bob, []string{"alice"}, true},
		{"/inbox", like, bob, []string{""}, true},
		{"/inbox", both, bob, []string{"alice", "carol"}, true},
		{"/inbox", nameless, bob, []string{""}, true},
		{"/actors/alice/inbox", unsigned, "", []string{"alice"}, false},
		{"/actors/alice/inbox", unsigned, "forger", nil, false},
		{"/actors/alice/inbox", like, "", nil, true},
		{"/actors/alice/inbox", like, "https://there.example/users/eve", nil, true},
		{"/actors/mallory/inbox", like, bob, nil, true},
		{"/elsewhere", like, bob, nil, true},
		{"/inbox", foreign, bob, nil, true},
		{"/inbox", block, bob, nil, true},
		{"/inbox", `{}`, bob, nil, true},
		{"/inbox", `{"type":"Like","id":"https://bad.example/1","actor":"https://bad.example/u"}`, bob, nil, true},
	} {
		r := httptest.NewRequest(http.MethodPost, "https://here.example"+test.path, nil)
		r.Header.Set("Content-Type", activityJSON)
		var header []string
		if test.signer != "" {
			r.Header.Set("Signed-By", test.signer)
			header = []string{"Signed-By", test.signer}
		}
		x, err := opts.Explain(r, []byte(test.body))
		if err != nil || !slices.Equal(x.Inboxes, test.inboxes) || x.Needed != test.needed && x.Activity != "" || (x.Refused == "") != (x.Status == http.StatusAccepted) {
			t.Errorf("%s to %s: %+v, %v", test.body, test.path, x, err)
		}
		if rec := w.post(test.path, test.body, header...); rec.Code != x.Status {
			t.Errorf("%s to %s: explained as %+v, and it is %d %s", test.body, test.path, x, rec.Code, rec.Body)
		}
	}
	t.Run("a key that can't be had leaves the rest as if it were right", func(t *testing.T) {
		r := httptest.NewRequest(http.MethodPost, "https://here.example/inbox", nil)
		r.Header.Set("Content-Type", activityJSON)
		r.Header.Set("Signed-By", "nobody knows")
		if x, err := opts.Explain(r, []byte(like)); err != nil || !x.Unproved || x.Status != http.StatusAccepted || x.Key != "https://there.example/a/1" || x.Digest == "" {
			t.Errorf("%+v, %v", x, err)
		}
	})
	t.Run("what isn't known is an error", func(t *testing.T) {
		opts := opts
		opts.Exists = func(context.Context, string) (bool, error) { return false, errors.New("no answer") }
		r := httptest.NewRequest(http.MethodPost, "https://here.example/actors/alice/inbox", nil)
		r.Header.Set("Content-Type", activityJSON)
		r.Header.Set("Signed-By", bob)
		if x, err := opts.Explain(r, []byte(like)); err == nil {
			t.Errorf("%+v", x)
		}
	})
	for path, want := range map[string]bool{"/inbox": true, "/inbox/": true, "/actors/x/inbox": true, "/actors/x": false} {
		if actor, serves := opts.Serves(path); serves != want || serves && path[1] == 'a' && actor != "x" {
			t.Errorf("%s: %q, %t", path, actor, serves)
		}
	}
	if _, serves := (activitypub.Options{Actors: "x", Shared: "/inbox"}).Serves("/inbox"); serves {
		t.Error("an inbox without actors serves")
	}
}
