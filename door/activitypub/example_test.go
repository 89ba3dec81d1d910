package activitypub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/store/memstore"
)

// cases stands for your tables: the states of reports by their ids.
type cases map[string]string

// snippet: Handler
func (c cases) handle(ctx context.Context, a *activitypub.Activity) error {
	var body struct{ Object string }
	if err := json.Unmarshal(a.Body, &body); err != nil {
		return &activitypub.Refusal{Code: "unreadable", Err: err} // again wouldn't help
	}
	switch a.Type {
	case "Offer":
		create := activitypub.Creation{Name: "create_report", Create: func(context.Context) (bool, error) {
			return c.insert(body.Object)
		}}
		return create.Take(ctx, slog.Default(), a)
	case "Accept":
		validate := activitypub.Step[string]{
			Name: "validate_report", From: []string{"received"}, To: "valid",
			State: func(context.Context) (string, error) { return c[body.Object], nil },
			Apply: func(_ context.Context, from string) error { return c.update(body.Object, from, "valid") },
		}
		return validate.Take(ctx, slog.Default(), a)
	}
	return nil
}

// end snippet

func (c cases) insert(id string) (bool, error) {
	if _, there := c[id]; there {
		return false, nil
	}
	c[id] = "received"
	return true, nil
}

func (c cases) update(id, from, to string) error {
	if c[id] != from {
		return errors.New("somebody was faster")
	}
	c[id] = to
	return nil
}

func Example() {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	c := cases{}
	// snippet: Inbox
	policies := activitypub.Policies{{Host: "*.bad.example", Refuse: true}, {Host: "proto.example", Unsigned: true}}
	verifier, err := httpsig.New(httpsig.Options{
		Keys: httpsig.NewKeys(httpsig.KeysOptions{Allow: policies.Accepts}),
		Base: &url.URL{Scheme: "https", Host: "social.example"}, // how senders reach this server
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	inbox, err := activitypub.New(engine, activitypub.Options{
		Actors:   "https://social.example/actors/{actor}",
		Shared:   "/inbox",
		Exists:   func(_ context.Context, actor string) (bool, error) { return actor == "alice", nil },
		Verifier: verifier,
		Policies: policies,
		Handle:   c.handle,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	http.Handle("/actors/", inbox)
	http.Handle("/inbox", inbox)
	// end snippet

	body := []byte(`{"type":"Offer","id":"https://proto.example/1","actor":"https://proto.example/bob","object":"r1"}`)
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/actors/alice/inbox", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/activity+json")
		w := httptest.NewRecorder()
		http.DefaultServeMux.ServeHTTP(w, r)
		fmt.Println(w.Body)
	}
	// Output:
	// {"status":202,"activity_id":"https://proto.example/1","message":"queued for processing"}
	// {"status":202,"activity_id":"https://proto.example/1","message":"already queued for processing"}
}
